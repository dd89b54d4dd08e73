import { type AshClient, isAshError } from '@ash-ai/sdk'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ROOT, runProcess } from './support/run-process.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let client: AshClient
beforeAll(async () => {
  server = await startTestServer()
  client = server.client
})
afterAll(() => server.close())

async function makeSession(): Promise<{ id: string; sandboxId: string }> {
  const { id } = await client.sessions.create({ template: 'python', limits: { memoryMb: 512 } })
  await client.sessions.execute(id, { code: 'print("hello from inside")' })
  const { sandboxes } = await client.sandboxes.list({ session: id })
  const [sandbox] = sandboxes
  if (!sandbox) throw new Error('the session has no sandbox')
  return { id, sandboxId: sandbox.id }
}

const ash = (...args: string[]) =>
  runProcess(process.execPath, ['--conditions=development', `${ROOT}/packages/cli/bin/ash.mjs`, ...args], {
    env: { ASH_SERVER_URL: server.url, ASH_API_KEY: server.apiKey },
  })

const codeOf = (error: unknown) => (isAshError(error) ? error.code : String(error))

test('a sandbox says whose it is, what it may use and what it uses', async () => {
  const { id, sandboxId } = await makeSession()
  await client.sessions.execute(id, { code: 'x = sum(range(5_000_000)); y = bytearray(50_000_000)' })
  const sandbox = await client.sandboxes.get(sandboxId)
  expect(sandbox).toMatchObject({
    id: sandboxId,
    sessionId: id,
    template: 'python',
    provider: 'bwrap',
    isolation: 'bwrap',
    limits: { memoryMb: 512 },
  })
  expect(['waiting', 'running']).toContain(sandbox.state)
  expect(sandbox.uptimeMs).toBeGreaterThan(0)
  const { usage, enforcement } = sandbox
  expect(usage?.diskBytes).toBeGreaterThanOrEqual(0)
  if (enforcement.backend !== 'rlimit') {
    expect(usage?.memoryBytes).toBeGreaterThan(50_000_000)
    expect(usage?.peakMemoryBytes).toBeGreaterThanOrEqual(usage?.memoryBytes ?? 0)
    expect(usage?.processes).toBeGreaterThan(1)
  }
})

test('lists come in pages, those of one session alone, and nothing of what has ended', async () => {
  const [one, other] = [await makeSession(), await makeSession()]
  const first = await client.sandboxes.list({ limit: 1 })
  expect(first.sandboxes).toHaveLength(1)
  const rest = await client.sandboxes.list({ cursor: first.nextCursor })
  const ids = [...first.sandboxes, ...rest.sandboxes].map(({ sessionId }) => sessionId)
  expect(ids).toEqual(expect.arrayContaining([one.id, other.id]))
  await client.sessions.end(one.id)
  await expect
    .poll(() => client.sandboxes.get(one.sandboxId).catch(codeOf), { timeout: 10_000 })
    .toBe('sandbox_not_found')
  expect(await client.sandboxes.list({ cursor: 'nonsense' }).catch(codeOf)).toBe('validation_failed')
})

test('its logs are lines: output, refused connections, the last of them', async () => {
  const { id, sandboxId } = await makeSession()
  const connect = `import urllib.request
try: urllib.request.urlopen('http://example.com', timeout=5)
except Exception as error: print('no:', error)`
  await client.sessions.execute(id, { code: connect })
  await expect
    .poll(async () => (await client.sandboxes.logs(sandboxId)).map(({ text }) => text).join('\n'))
    .toMatch(/hello from inside[\s\S]*example\.com:80/)
  const [last, ...none] = await client.sandboxes.logs(sandboxId, { tail: 1 })
  expect(none).toEqual([])
  expect(last?.time).toMatch(/^\d{4}-/)
  expect(await client.sandboxes.logs(sandboxId, { tail: 0 })).toEqual([])
})

test('logs can be followed', async () => {
  const { id } = await makeSession()
  const controller = new AbortController()
  const seen: string[] = []
  const following = (async () => {
    for await (const { text } of client.sandboxes.followSessionLogs(id, { signal: controller.signal })) {
      seen.push(text)
      if (text === 'second') controller.abort()
    }
  })().catch(() => {})
  await expect.poll(() => seen).toContain('hello from inside')
  await client.sessions.execute(id, { code: 'print("first\\nsecond")' })
  await following
  expect(seen).toEqual(['hello from inside', 'first', 'second'])
})

test('ash ps, top and logs show them', async () => {
  const { id, sandboxId } = await makeSession()
  const ps = await ash('ps', '--session', id)
  expect(ps).toMatchObject({ code: 0, stdout: expect.stringContaining(sandboxId) })
  expect(ps.stdout).toContain('/ 512 MB')
  const top = await ash('top', '--json')
  expect(JSON.parse(top.stdout).sandboxes.map(({ sessionId }: { sessionId: string }) => sessionId)).toContain(
    id,
  )
  expect((await ash('top')).stdout).toContain(sandboxId)
  expect(await ash('logs', id, '-n', '1')).toMatchObject({ code: 0, stdout: 'hello from inside\n' })
})
