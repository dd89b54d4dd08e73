import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { SessionEvent } from '@ash-ai/sdk'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { deployTestAgent, endOf, scripted } from './support/conversation.ts'
import { eventually, nextUidBase } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const MEMORY_MB = 700
const PROCESSES = 120

let server: TestServer
beforeAll(async () => {
  server = await startTestServer({
    env: { ASH_SANDBOX_MEMORY_MB: String(MEMORY_MB), ASH_SANDBOX_PROCESSES: String(PROCESSES) },
  })
  await deployTestAgent(server.client)
})
afterAll(() => server.close())

/** The entries of one type that a session's log holds by now. */
async function entries(
  sessionId: string,
  type: SessionEvent['type'],
  { client } = server,
): Promise<SessionEvent[]> {
  const found: SessionEvent[] = []
  const stop = AbortSignal.timeout(500)
  try {
    for await (const event of client.sessions.follow(sessionId, { signal: stop })) {
      if (event.type === type) found.push(event)
    }
  } catch (error) {
    if (!stop.aborted) throw error
  }
  return found
}

test('health and session say which limits are in force and how well they hold', async () => {
  const { limits } = await server.client.health()
  expect(limits.backend).toMatch(/^cgroup-/)
  expect(limits.enforcement).toMatchObject({ memoryMb: 'hard', processes: 'hard', cpus: 'hard' })
  const session = await server.client.sessions.create({ agent: 'zebra', limits: { processes: 100 } })
  expect(session.limits).toMatchObject({ memoryMb: MEMORY_MB, processes: 100 })
  await server.client.sessions.end(session.id)
})

test('nobody gets more than the operator allows', async () => {
  const asking = server.client.sessions.create({ agent: 'zebra', limits: { memoryMb: MEMORY_MB + 1 } })
  await expect(asking).rejects.toMatchObject({
    code: 'validation_failed',
    details: [{ path: 'limits.memoryMb', message: expect.stringContaining(String(MEMORY_MB)) }],
  })
})

test('a command that eats memory is killed and the log says why; the session goes on', async () => {
  const { id } = await server.client.sessions.create({ agent: 'zebra' })
  const eat = `perl -e 'my @x; push @x, "a" x 1_000_000 for 1..${MEMORY_MB * 2}'`
  const result = await server.client.sessions.exec(id, { command: eat })
  expect(result).toMatchObject({ signal: 'SIGKILL' })
  const [hit] = await eventually(
    () => entries(id, 'limit'),
    (hits) => hits.length > 0,
  )
  expect(hit).toMatchObject({ data: { code: 'oom_killed', resource: 'memoryMb', limit: MEMORY_MB } })
  expect(await server.client.sessions.send(id, scripted({ text: 'still here' })).text()).toBe('still here')
  await server.client.sessions.end(id)
})

test('an agent that is killed for memory ends its turn with oom_killed, and the next turn works', async () => {
  const { id } = await server.client.sessions.create({ agent: 'zebra' })
  // Bridge and claude offer themselves: the kernel takes them before the one who eats.
  const offer =
    'for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || echo 1000 > $p/oom_score_adj; done 2>/dev/null'
  const eat = `${offer}; perl -e 'my @x; push @x, "a" x 1_000_000 for 1..${MEMORY_MB * 2}'`
  const step = { tool: 'Bash', input: { command: eat, description: 'eat' } }
  const turn = server.client.sessions.send(id, scripted(step, { text: 'never' }))
  expect(await endOf(turn)).toMatchObject({ type: 'error', code: 'oom_killed', retryable: true })
  // The one who eats lives on for a moment, and may take the next turn with it.
  const back = () =>
    server.client.sessions
      .send(id, scripted({ text: 'back' }))
      .text()
      .catch(() => 'not yet')
  await eventually(back, (text) => text === 'back', 30_000)
  await server.client.sessions.end(id)
})

test('a fork bomb meets the limit, which the log tells; neighbours and server do not notice', async () => {
  const [bomb, neighbour] = await Promise.all([
    server.client.sessions.create({ agent: 'zebra' }),
    server.client.sessions.create({ agent: 'zebra' }),
  ])
  const command = `perl -e 'for (1..500) { my $p = fork; if (defined $p && !$p) { sleep 20; exit } }'; echo survived`
  const bombing = server.client.sessions.exec(bomb.id, { command })
  expect((await server.client.sessions.exec(neighbour.id, { command: 'echo fine' })).stdout).toBe('fine\n')
  expect((await bombing).stdout).toBe('survived\n')
  const [hit] = await eventually(
    () => entries(bomb.id, 'limit'),
    (hits) => hits.length > 0,
  )
  expect(hit).toMatchObject({ data: { code: 'process_limit', resource: 'processes', limit: PROCESSES } })
  await Promise.all([server.client.sessions.end(bomb.id), server.client.sessions.end(neighbour.id)])
  await eventually(server.sandboxProcesses, (count) => count === 0)
})

test('open files and the size of a file are limited', async () => {
  const { id } = await server.client.sessions.create({
    agent: 'zebra',
    limits: { openFiles: 100, fileSizeMb: 2 },
  })
  const { stdout } = await server.client.sessions.exec(id, { command: 'ulimit -Hn; ulimit -Hf; ulimit -Hc' })
  expect(stdout.trim().split('\n')).toEqual(['100', '2048', '0'])
  const written = await server.client.sessions.exec(id, {
    command: 'head -c 5000000 /dev/zero > big; wc -c < big',
  })
  expect(Number(written.stdout)).toBeLessThanOrEqual(2 * 1024 * 1024)
  await server.client.sessions.end(id)
})

const DISK_MB = 64
const fill = { command: 'dd if=/dev/zero of=big bs=1M count=200; dd if=/dev/zero of=rest bs=4k count=1000' }

test('a full disk refuses writes from inside and outside, the log tells it, and deleting helps', async () => {
  const { client } = server
  expect((await client.health()).limits.enforcement).toMatchObject({ diskMb: 'hard' })
  const { id, limits } = await client.sessions.create({ agent: 'zebra', limits: { diskMb: DISK_MB } })
  expect(limits).toMatchObject({ diskMb: DISK_MB })
  const neighbour = await client.sessions.create({ agent: 'zebra' })
  expect(await client.sessions.exec(id, fill)).toMatchObject({
    exitCode: 1,
    stderr: expect.stringContaining('No space left on device'),
  })
  const [hit] = await eventually(
    () => entries(id, 'limit'),
    (hits) => hits.length > 0,
  )
  expect(hit).toMatchObject({ data: { code: 'disk_full', resource: 'diskMb', limit: DISK_MB, count: 1 } })
  await expect(client.files.write(id, 'upload.bin', new Uint8Array(10_000))).rejects.toMatchObject({
    code: 'disk_full',
    statusCode: 507,
    isRetryable: false,
  })
  await client.files.write(neighbour.id, 'upload.bin', new Uint8Array(1_000_000))
  expect((await client.files.list(id)).files.map(({ path }) => path)).toEqual(['CLAUDE.md', 'big', 'rest'])
  await client.files.delete(id, 'big')
  await client.files.write(id, 'upload.bin', new Uint8Array(1_000_000))
  expect(await client.sessions.send(id, scripted({ text: 'still here' })).text()).toBe('still here')
  await Promise.all([client.sessions.end(id), client.sessions.end(neighbour.id)])
})

test('files of a paused session can be reached, also after a restart of any kind; its end leaves nothing', async () => {
  const other = await startTestServer()
  const mounts = async () => (await readFile('/proc/self/mountinfo', 'utf8')).split(other.dataDir).length - 1
  try {
    await deployTestAgent(other.client)
    const { id } = await other.client.sessions.create({ agent: 'zebra' })
    await other.client.files.write(id, 'note.txt', 'kept')
    expect(await mounts()).toBe(1)
    await other.client.sessions.pause(id)
    expect(await other.client.files.readText(id, 'note.txt')).toBe('kept')
    await other.stop()
    expect(await mounts()).toBe(0)
    await other.start()
    expect(await other.client.files.readText(id, 'note.txt')).toBe('kept')
    await other.client.files.write(id, 'more.txt', 'more')
    await other.kill()
    expect(await mounts()).toBe(1)
    await other.start()
    expect(await mounts()).toBe(0)
    const { stdout } = await other.client.sessions.exec(id, { command: 'cat note.txt more.txt' })
    expect(stdout).toBe('keptmore')
    await other.client.sessions.end(id)
    expect(await mounts()).toBe(0)
    expect(await readdir(join(other.dataDir, 'sandboxes'))).toEqual([])
  } finally {
    await other.close()
  }
})

test('a server without privileges counts the disk and stops a sandbox that took too much', async () => {
  const uid = nextUidBase(1)
  const other = await startTestServer({ user: { uid, gid: uid }, env: { ASH_RUNTIME_DIR: '' } })
  try {
    const { client } = other
    await deployTestAgent(client)
    expect((await client.health()).limits.enforcement).toMatchObject({ diskMb: 'polled' })
    const { id } = await client.sessions.create({ agent: 'zebra', limits: { diskMb: DISK_MB } })
    await client.sessions.exec(id, fill)
    const ended = await eventually(
      () => client.sessions.get(id),
      ({ status }) => status === 'error',
    )
    expect(ended).toMatchObject({ error: { code: 'disk_full' } })
    expect(await entries(id, 'limit', other)).toMatchObject([
      { data: { code: 'disk_full', resource: 'diskMb', limit: DISK_MB } },
    ])
    await client.files.delete(id, 'big')
    expect(await client.sessions.send(id, scripted({ text: 'back' })).text()).toBe('back')
    await client.sessions.end(id)
  } finally {
    await other.close()
  }
})
