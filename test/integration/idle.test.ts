import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { text } from 'node:stream/consumers'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { bash, collect, deployTestAgent, scripted } from './support/conversation.ts'
import { endSessions, killSandboxes, metric, mountsOf, storedSandboxes } from './support/pool-view.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const IDLE_MS = 700
const SOON = { timeout: 10_000 }

let server: TestServer

/** A server for each group; what its tests made is ended after each. */
function useServer(env: Record<string, string> = {}): void {
  beforeAll(async () => {
    server = await startTestServer({ env })
    await deployTestAgent(server.client)
  })
  afterAll(() => server.close())
  afterEach(() => endSessions(server))
}

const create = async () => (await server.client.sessions.create({ agent: 'zebra' })).id
const run = async (id: string, command: string) => (await server.client.sessions.exec(id, { command })).stdout
const get = (id: string) => server.client.sessions.get(id)
const becomesCold = (id: string) =>
  eventually(
    () => get(id),
    ({ sandboxState }) => sandboxState === 'cold',
  )
const statuses = async (id: string) =>
  (await server.client.sessions.events(id, { types: ['status'] })).events.map(
    ({ data }) => (data as { status: string }).status,
  )

describe('the idle time', () => {
  useServer({ ASH_IDLE_TIMEOUT_MS: String(IDLE_MS) })

  test('leaves a session no process, and everything else', async () => {
    const { client } = server
    const id = await create()
    await client.sessions.send(id, scripted(bash('echo kept > file'), { text: 'zebra' })).text()
    expect(await becomesCold(id)).toMatchObject({ status: 'paused' })
    await eventually(server.sandboxProcesses, (count) => count === 0)
    expect(await metric(server, 'ash_evictions_total{reason="idle"}')).toBe(1)
    expect(await client.files.readText(id, 'file')).toBe('kept\n')
    expect(JSON.stringify(await client.sessions.messages(id))).toContain('zebra')
    expect((await client.sessions.events(id)).events.length).toBeGreaterThan(4)
    expect((await client.checkpoints.list(id)).checkpoints[0]).toMatchObject({ isCurrent: true })
    // Reading is no use of it.
    expect(await get(id)).toMatchObject({ status: 'paused', sandboxState: 'cold' })
    expect(await run(id, 'cat file')).toBe('kept\n')
    const told = await client.sessions.send(id, scripted({ text: 'heard: {{prompts}}' })).text()
    expect(told).toContain('zebra')
  })

  test('leaves a frozen sandbox no longer than another', async () => {
    const { client } = server
    const id = await create()
    expect(await client.sessions.pause(id)).toMatchObject({ sandboxState: 'waiting' })
    expect(await becomesCold(id)).toMatchObject({ status: 'paused' })
    await eventually(server.sandboxProcesses, (count) => count === 0)
    expect(await client.sessions.resume(id)).toMatchObject({ status: 'active', resumed: 'cold_local' })
    expect(await statuses(id)).toEqual(['active', 'paused', 'active'])
  })

  test('does not pass while a session works or is used', async () => {
    const talks = async () => {
      const turn = server.client.sessions.send(await create(), scripted(bash('sleep 1.8'), { text: 'awake' }))
      return (await collect(turn)).map(({ type }) => type)
    }
    const works = async () => run(await create(), 'sleep 1.8; echo awake')
    // The folder for temporary files goes with the sandbox.
    const isUsed = async () => {
      const id = await create()
      await run(id, 'touch /tmp/mark')
      for (let use = 0; use < 18; use++) await run(id, 'sleep 0.1')
      return run(id, 'ls /tmp/mark')
    }
    const [types, worked, used] = await Promise.all([talks(), works(), isUsed()])
    expect(types.filter((type) => type === 'status' || type === 'error')).toEqual([])
    expect(types.at(-1)).toBe('done')
    expect([worked, used]).toEqual(['awake\n', '/tmp/mark\n'])
  })

  test('may pass during an upload, which arrives whole and is saved', async () => {
    const { client } = server
    const id = await create()
    const upload = startUpload(`/api/sessions/${id}/files/big.txt`)
    upload.write('first half, ')
    await becomesCold(id)
    upload.end('second half')
    const [reply] = (await once(upload, 'response')) as [IncomingMessage]
    expect([reply.statusCode, JSON.parse(await text(reply))]).toMatchObject([200, { size: 23 }])
    expect(await client.files.readText(id, 'big.txt')).toBe('first half, second half')
    const isSaved = async () => {
      const { checkpointId } = await get(id)
      return client.files.readText(id, 'big.txt', { checkpointId }).catch(() => undefined)
    }
    await expect.poll(isSaved, SOON).toBe('first half, second half')
    expect(await run(id, 'cat big.txt; stat -c %U big.txt; rm big.txt')).toMatch(/^first half, second half/)
  })
})

function startUpload(path: string) {
  const headers = { authorization: `Bearer ${server.apiKey}`, 'content-type': 'application/octet-stream' }
  return request(`${server.url}${path}`, { method: 'PUT', agent: false, headers })
}

describe('the state of a sandbox', () => {
  useServer()
  const stored = () => storedSandboxes(server).map(({ sessionId, state }) => [sessionId, state])

  test('is shown with its session and stored, from its start to its end', async () => {
    const { client } = server
    await deployTestAgent(client, 'slow', { 'startup.sh': 'sleep 0.5' })
    const making = client.sessions.create({ agent: 'slow' })
    const [starting] = await eventually(
      async () => (await client.sessions.list({ status: 'starting' })).sessions,
      ({ length }) => length > 0,
    )
    const { id } = await making
    expect(starting).toMatchObject({ id, sandboxState: 'warming' })
    expect(await get(id)).toMatchObject({ status: 'active', sandboxState: 'waiting' })
    await expect.poll(stored, SOON).toEqual([[id, 'waiting']])

    const command = run(id, 'until [ -e go ]; do sleep 0.02; done')
    await eventually(
      () => get(id),
      ({ sandboxState }) => sandboxState === 'running',
    )
    await expect.poll(stored, SOON).toEqual([[id, 'running']])
    await client.files.write(id, 'go', '')
    await command
    expect(await get(id)).toMatchObject({ status: 'active', sandboxState: 'waiting' })
    await expect.poll(stored, SOON).toEqual([[id, 'waiting']])

    expect(await client.sessions.pause(id)).toMatchObject({ status: 'paused', sandboxState: 'waiting' })
    await expect.poll(stored, SOON).toEqual([[id, 'waiting']])
    const stopped = await client.sessions.stop(id)
    expect(stopped).toMatchObject({ status: 'paused', sandboxState: 'cold' })
    expect(stopped.sandboxId).toBeUndefined()
    await expect.poll(stored, SOON).toEqual([])

    const { sandboxId } = await client.sessions.resume(id)
    await expect
      .poll(() => storedSandboxes(server), SOON)
      .toMatchObject([{ id: sandboxId, sessionId: id, state: 'waiting' }])
    await killSandboxes(server)
    await eventually(
      () => get(id),
      ({ status }) => status === 'error',
    )
    expect(await get(id)).toMatchObject({ sandboxState: 'cold', error: { code: 'sandbox_died' } })
    await expect.poll(stored, SOON).toEqual([])
    expect(await client.sessions.end(id)).toMatchObject({ status: 'ended', sandboxState: 'cold' })
  })

  test.each(['SIGTERM', 'SIGKILL'])('is forgotten with a server that ends by %s', async (signal) => {
    const [active, frozen] = [await create(), await create()]
    await server.client.sessions.pause(frozen)
    await expect.poll(stored, SOON).toHaveLength(2)
    if (signal === 'SIGTERM') {
      expect(await server.stop()).toBe(0)
      expect(stored()).toEqual([])
      expect(await mountsOf(server)).toEqual([])
    } else await server.kill()
    await eventually(server.sandboxProcesses, (count) => count === 0)
    await server.start()
    expect(stored()).toEqual([])
    for (const id of [active, frozen]) {
      const session = await get(id)
      expect(session).toMatchObject({ status: 'paused', sandboxState: 'cold' })
      expect(session.sandboxId).toBeUndefined()
      expect(await run(id, 'ls')).toBe('CLAUDE.md\n')
    }
    await expect.poll(stored, SOON).toHaveLength(2)
  })
})
