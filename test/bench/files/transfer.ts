import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { startTestServer } from '../../integration/support/test-server.ts'
import { table, yes } from '../lifecycle/tables.ts'
import { row, summarize } from '../support/samples.ts'
import { timed } from '../support/timed.ts'

const SIZE_MB = 1024
const WARM_UP_MB = 100
const ROUNDS = 3
const MOST_GROWTH_MB = 64
const SAMPLE_MS = 25
const MB = 1024 ** 2
const PART = Buffer.alloc(MB, 7)

/** Where a file goes and comes from, and whose memory that takes. */
interface Target {
  name: string
  isFloor: boolean
  url: string
  headers: Record<string, string>
  pid: number
  /** Before the file is sent again: on the disk of a session there is no room for two. */
  clear?: () => Promise<unknown>
}

interface Sample {
  ms: number
  grownMb: number
}

/** A large file in, and out again. */
export async function transfer(): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'ash-bench-'))
  const bare = fork(new URL('../support/bare-files.ts', import.meta.url), [join(folder, 'file')])
  const server = await startTestServer()
  try {
    const [port] = await once(bare, 'message')
    const { id } = await server.client.sessions.create({
      template: 'python',
      limits: { diskMb: 2 * SIZE_MB },
    })
    const targets: Target[] = [
      {
        name: 'bare Fastify (floor)',
        isFloor: true,
        url: `http://127.0.0.1:${port}/file`,
        headers: {},
        pid: bare.pid ?? 0,
      },
      {
        name: '**Ash**',
        isFloor: false,
        url: `${server.url}/api/sessions/${id}/files/file`,
        headers: { authorization: `Bearer ${server.apiKey}` },
        pid: server.pid(),
        clear: () => server.client.files.delete(id, 'file'),
      },
    ]
    return [
      `A file of ${SIZE_MB} MB over one connection: \`PUT …/files/<path>\` until the reply, and \`GET\` until the last byte. Memory is`,
      `the most that the server has meanwhile beyond what it had before, read every ${SAMPLE_MS} ms; ${WARM_UP_MB} MB went both ways first.`,
      'Bare Fastify pipes the body to a file of the host and back; a session has a disk image of its own.',
      '',
      ...table(
        ['median', 'n', 'MB/s', 'memory grown by, MB (largest)', 'target', 'met'],
        ...(await measure(targets)),
      ),
    ]
  } finally {
    bare.disconnect()
    await server.close()
    await rm(folder, { recursive: true })
  }
}

async function measure(targets: Target[]): Promise<string[]> {
  for (const target of targets) {
    await send(target, WARM_UP_MB)
    await receive(target, WARM_UP_MB)
  }
  const runs = targets.map((target) => ({ target, sent: [] as Sample[], received: [] as Sample[] }))
  for (let round = 0; round < ROUNDS; round++)
    for (const { target, sent, received } of runs) {
      await target.clear?.()
      sent.push(await watched(target.pid, () => send(target, SIZE_MB)))
      received.push(await watched(target.pid, () => receive(target, SIZE_MB)))
    }
  return runs.flatMap(({ target, sent, received }) => [
    line(`${target.name}, in`, sent, target),
    line(`${target.name}, out`, received, target),
  ])
}

function line(title: string, samples: Sample[], { isFloor }: Target): string {
  const { p50: ms } = summarize(samples.map((sample) => sample.ms))
  const grown = samples.map(({ grownMb }) => grownMb)
  const largest = Math.max(...grown)
  const memory = `${summarize(grown).p50.toFixed(1)} (${largest.toFixed(1)})`
  const goal = isFloor ? ['', ''] : [`< ${MOST_GROWTH_MB} MB`, yes(largest < MOST_GROWTH_MB)]
  return row(title, samples.length, ((SIZE_MB / ms) * 1000).toFixed(0), memory, ...goal)
}

/** How long `work` takes, and how much memory the process takes at most meanwhile, beyond what it had. */
async function watched(pid: number, work: () => Promise<void>): Promise<Sample> {
  const before = await rssMb(pid)
  let most = before
  const timer = setInterval(async () => {
    most = Math.max(most, await rssMb(pid))
  }, SAMPLE_MS)
  const ms = await timed(work).finally(() => clearInterval(timer))
  return { ms, grownMb: Math.max(most, await rssMb(pid)) - before }
}

async function rssMb(pid: number): Promise<number> {
  const [, kb] = /^VmRSS:\s+(\d+) kB/m.exec(await readFile(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kb) / 1024
}

async function send({ url, headers }: Target, count: number): Promise<void> {
  const sending = request(url, { method: 'PUT', headers: { ...headers, 'content-length': count * MB } })
  const answered = once(sending, 'response')
  await pipeline(Readable.from(Array(count).fill(PART)), sending)
  const [response] = await answered
  if (response.statusCode !== 200) throw new Error(`PUT was answered with ${response.statusCode}`)
  await response.resume().toArray()
}

async function receive({ url, headers }: Target, count: number): Promise<void> {
  const [response] = await once(request(url, { headers }).end(), 'response')
  let bytes = 0
  for await (const chunk of response) bytes += chunk.length
  if (bytes !== count * MB) throw new Error(`${bytes} bytes came, not ${count * MB}`)
}
