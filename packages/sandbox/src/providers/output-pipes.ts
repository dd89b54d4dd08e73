import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync, constants, fstatSync, openSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'

const { O_RDONLY, O_WRONLY, O_NONBLOCK, O_NOFOLLOW } = constants
/** Made at once, since it takes a process; each start needs two. */
const STOCK = 32
const LOW_STOCK = 8
/** Enough for a program that runs one thing: nor does that wait for more. */
const FIRST_STOCK = LOW_STOCK + 4
/** Without `mkfifo`, how long it is not looked for again. */
const RETRY_MS = 10_000
const MKFIFO_OPTIONS = { env: { PATH: '/usr/bin:/bin' }, stdio: 'ignore', timeout: 2_000 } as const
/** Inside a user namespace the one who writes is neither owner nor group. */
const MODE = '622'

type End = number | 'pipe'
interface Pipe {
  readFd: number
  writeFd: number
}

/** Spawned, with what it writes. */
export type WithOutput<Started> = Started & { stdout: Readable; stderr: Readable }

/**
 * Spawns with named pipes for stdout and stderr, which have lost their names by then. Node's own are sockets, and
 * those cannot be opened as `/dev/stdout` and `/dev/stderr`; they are used only where there is no `mkfifo`.
 */
export async function spawnWithOutput<Started extends { child: ChildProcess }>(
  spawnWith: (stdout: End, stderr: End) => Started,
): Promise<WithOutput<Started>> {
  const pipes = await takePipes()
  if (pipes === undefined) {
    const started = spawnWith('pipe', 'pipe')
    return { ...started, stdout: started.child.stdout as Readable, stderr: started.child.stderr as Readable }
  }
  let started: Started
  try {
    started = spawnWith(pipes[0].writeFd, pipes[1].writeFd)
  } catch (error) {
    for (const { readFd } of pipes) closeSync(readFd)
    throw error
  } finally {
    for (const { writeFd } of pipes) closeSync(writeFd)
  }
  const [stdout, stderr] = [openReader(pipes[0]), openReader(pipes[1])]
  started.child.once('error', () => {
    stdout.destroy()
    stderr.destroy()
  })
  return { ...started, stdout, stderr }
}

const openReader = ({ readFd }: Pipe) => new Socket({ fd: readFd, readable: true, writable: false })

const stock: Pipe[] = []
let wanted = FIRST_STOCK
let refilling: Promise<void> | undefined
let retryAt = 0

/** Begins to make pipes where few are left. */
export function expectOutput(): void {
  if (stock.length <= LOW_STOCK && performance.now() >= retryAt) void refill()
}

async function takePipes(): Promise<[Pipe, Pipe] | undefined> {
  while (stock.length < 2 && performance.now() >= retryAt) await refill()
  const [one, other] = stock.splice(-2)
  if (one === undefined || other === undefined) {
    if (one !== undefined) stock.push(one)
    return undefined
  }
  expectOutput()
  return [one, other]
}

function refill(): Promise<void> {
  refilling ??= makePipes()
    .catch(() => {
      retryAt = performance.now() + RETRY_MS
    })
    .finally(() => {
      refilling = undefined
    })
  return refilling
}

async function makePipes(): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'ash-output-'))
  try {
    const paths = Array.from({ length: wanted - stock.length }, (_, index) => join(folder, String(index)))
    wanted = STOCK
    const child = spawn('mkfifo', ['-m', MODE, ...paths], MKFIFO_OPTIONS)
    await new Promise<void>((resolve, reject) => {
      child.once('error', reject)
      child.once('exit', (code) => (code === 0 ? resolve() : reject(new Error('mkfifo failed'))))
    })
    for (const path of paths) stock.push(openPipe(path))
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** Both ends; the second by the first, since with no reader it would wait for one. */
function openPipe(path: string): Pipe {
  const readFd = openSync(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW)
  try {
    if (!fstatSync(readFd).isFIFO()) throw new Error('not a pipe')
    return { readFd, writeFd: openSync(`/proc/self/fd/${readFd}`, O_WRONLY) }
  } catch (error) {
    closeSync(readFd)
    throw error
  }
}
