import { readFile } from 'node:fs/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { deployTestAgent } from './support/conversation.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const MB = 1024 ** 2
const SIZE_MB = 1100
const MAX_GROWTH_MB = 64
const PART = new Uint8Array(MB).fill(7)

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
  await deployTestAgent(server.client)
})
afterAll(() => server.close())

/** `count` MB, each made when it is asked for. */
function megabytes(count: number): ReadableStream<Uint8Array> {
  let sent = 0
  return new ReadableStream(
    { pull: (controller) => (sent++ < count ? controller.enqueue(PART) : controller.close()) },
    { highWaterMark: 1 },
  )
}

async function memoryMb(): Promise<number> {
  const text = await readFile(`/proc/${server.pid()}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+)/.exec(text)?.[1]) / 1024
}

/** How much memory the server takes at most while `work` goes on, beyond what it had. */
async function growthDuring(work: () => Promise<unknown>): Promise<number> {
  const before = await memoryMb()
  let most = before
  const timer = setInterval(async () => {
    most = Math.max(most, await memoryMb())
  }, 50)
  try {
    await work()
  } finally {
    clearInterval(timer)
  }
  return most - before
}

test('more than a GB goes in and out through little memory, and not beyond the disk of the session', async () => {
  const { files, sessions } = server.client
  const { id } = await sessions.create({ agent: 'zebra', limits: { diskMb: 1500 } })
  // What is compiled and allocated once does not count.
  await files.write(id, 'warm-up', megabytes(100))
  for await (const _ of await files.readStream(id, 'warm-up'));
  await files.delete(id, 'warm-up')

  const writing = await growthDuring(async () => {
    expect((await files.write(id, 'big', megabytes(SIZE_MB))).size).toBe(SIZE_MB * MB)
  })
  let read = 0
  const reading = await growthDuring(async () => {
    for await (const part of await files.readStream(id, 'big')) read += part.length
  })
  expect(read).toBe(SIZE_MB * MB)
  expect(Math.max(writing, reading)).toBeLessThan(MAX_GROWTH_MB)

  const end = await Array.fromAsync(await files.readStream(id, 'big', { start: SIZE_MB * MB - 3 }))
  expect(Buffer.concat(end)).toEqual(Buffer.alloc(3, 7))
  await expect(files.write(id, 'more', megabytes(SIZE_MB))).rejects.toMatchObject({ code: 'disk_full' })
  expect((await files.list(id, { recursive: false })).files.map(({ path }) => path)).toEqual([
    'CLAUDE.md',
    'big',
  ])
}, 300_000)
