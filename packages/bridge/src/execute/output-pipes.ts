import type { ChildProcess } from 'node:child_process'
import { closeSync, constants, fstatSync, mkdtempSync, openSync, rmSync } from 'node:fs'
import { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { childProcess } from '../late-modules.ts'

const { O_RDONLY, O_WRONLY, O_NONBLOCK, O_NOFOLLOW } = constants
/** Made at once, since it takes a process; each start needs two. */
const STOCK = 12
const LOW_STOCK = 4
/** Without `mkfifo`, how long it is not looked for again. */
const RETRY_MS = 10_000
const MKFIFO_OPTIONS = {
  env: { PATH: '/usr/bin:/bin' },
  stdio: 'ignore',
  timeout: 2_000, // Code inside may have stopped it.
  killSignal: 'SIGKILL',
} as const

type End = number | 'pipe'
interface Pipe {
  readFd: number
  writeFd: number
}

/** Spawned, with what it writes. */
export interface WithOutput {
  child: ChildProcess
  stdout: Readable
  stderr: Readable
}

/**
 * Spawns with named pipes for stdout and stderr, which have lost their names by then. Node's own are sockets, and
 * those cannot be opened as `/dev/stdout` and `/dev/stderr`; they are used only where there is no `mkfifo`.
 */
export async function spawnWithOutput(
  spawnWith: (stdout: End, stderr: End) => ChildProcess,
): Promise<WithOutput> {
  const pipes = await takePipes()
  if (pipes === undefined) {
    const child = spawnWith('pipe', 'pipe')
    return { child, stdout: child.stdout as Readable, stderr: child.stderr as Readable }
  }
  let child: ChildProcess
  try {
    child = spawnWith(pipes[0].writeFd, pipes[1].writeFd)
  } catch (error) {
    for (const { readFd } of pipes) closeSync(readFd)
    throw error
  } finally {
    for (const { writeFd } of pipes) closeSync(writeFd)
  }
  const [stdout, stderr] = [openReader(pipes[0]), openReader(pipes[1])]
  child.once('error', () => {
    stdout.destroy()
    stderr.destroy()
  })
  return { child, stdout, stderr }
}

const openReader = ({ readFd }: Pipe) => new Socket({ fd: readFd, readable: true, writable: false })

const stock: Pipe[] = []
let refilling: Promise<void> | undefined
let retryAt = 0

async function takePipes(): Promise<[Pipe, Pipe] | undefined> {
  while (stock.length < 2 && performance.now() >= retryAt) await refill()
  const [one, other] = stock.splice(-2)
  if (one === undefined || other === undefined) {
    if (one !== undefined) stock.push(one)
    return undefined
  }
  if (stock.length <= LOW_STOCK) void refill()
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
  const folder = mkdtempSync(join(tmpdir(), 'ash-output-'))
  try {
    const paths = Array.from({ length: STOCK - stock.length }, (_, index) => join(folder, String(index)))
    const child = childProcess().spawn('mkfifo', ['-m', '600', ...paths], MKFIFO_OPTIONS)
    await new Promise<void>((resolve, reject) => {
      child.once('error', reject)
      child.once('exit', (code) => (code === 0 ? resolve() : reject(new Error('mkfifo failed'))))
    })
    for (const path of paths) stock.push(openPipe(path))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Both ends. Code inside can change what a name there means, so it is looked at, and named only once. */
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
