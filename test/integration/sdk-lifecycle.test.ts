import { Lifecycle } from '@ash-ai/sdk'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let lifecycle: Lifecycle
beforeAll(async () => {
  server = await startTestServer({ env: { ASH_DIALECT_PORT: '0' } })
  lifecycle = new Lifecycle(server.client)
})
afterAll(() => server.close())

const text = async (stream: AsyncIterable<Uint8Array>) =>
  Buffer.concat(await Array.fromAsync(stream)).toString()

async function inDialect(path: string): Promise<Record<string, unknown>> {
  // The last: the server has been started twice.
  const url = [...server.log().matchAll(/"dialectUrl":"([^"]+)"/g)].at(-1)?.[1]
  const reply = await fetch(url + path, { headers: { authorization: `Bearer ${server.apiKey}` } })
  return (await reply.json()) as Record<string, unknown>
}

test('a sandbox is started, runs code that remembers, and is stopped', async () => {
  const session = await lifecycle.start({
    agentConfig: { type: 'code_executor' },
    environment: 'Python3',
    provider: 'bwrap',
  })
  expect(session).toMatchObject({ provider: 'bwrap', status: 'running', sandboxId: expect.any(String) })
  const { sessionId } = session
  expect(await lifecycle.executeCode(sessionId, "x = 42\nprint('Hello World')")).toMatchObject({
    status: 'completed',
    stdout: 'Hello World\n',
  })
  expect(await lifecycle.executeCode(sessionId, 'x', { timeout: 5_000 })).toMatchObject({ result: 42 })
  const shell = await lifecycle.executeCode(sessionId, 'echo "$((6 * 7))"', { language: 'shell' })
  expect(shell.stdout).toBe('42\n')
  expect(await lifecycle.executeCode(sessionId, '1 / 0')).toMatchObject({
    status: 'failed',
    error: { name: 'ZeroDivisionError' },
  })
  expect(await lifecycle.getSandboxUrl(sessionId)).toContain(`//8000-${sessionId}.`)
  await lifecycle.stop(sessionId)
  await expect(lifecycle.executeCode(sessionId, '1')).rejects.toMatchObject({ code: 'session_ended' })
})

test('an environment or a provider that is not there is refused', async () => {
  await expect(lifecycle.start({ environment: 'Cobol' })).rejects.toThrow('Cobol')
  await expect(lifecycle.start({ provider: 'e2b' })).rejects.toMatchObject({ code: 'provider_unavailable' })
})

test('files go in and come out', async () => {
  const { sessionId } = await lifecycle.start()
  await lifecycle.writeFile(sessionId, 'data/in.txt', 'in')
  await lifecycle.uploadFiles(sessionId, [{ name: 'big.bin', content: new Uint8Array(70_000) }], {
    directory: 'data',
  })
  expect((await lifecycle.listFiles(sessionId)).map(({ path }) => path)).toEqual(['data'])
  const found = await lifecycle.listFiles(sessionId, 'data')
  expect(found.map(({ path, size }) => [path, size])).toEqual([
    ['data/big.bin', 70_000],
    ['data/in.txt', 2],
  ])
  expect(Buffer.from(await lifecycle.readFile(sessionId, 'data/in.txt')).toString()).toBe('in')
  expect(await text(await lifecycle.downloadFile(sessionId, 'data/in.txt'))).toBe('in')
  await lifecycle.stop(sessionId)
})

test('state is that of one session, survives its sandbox and is shared with the code in it', async () => {
  const [one, other] = [await lifecycle.start({ agentConfig: { type: 'planner' } }), await lifecycle.start()]
  expect(await lifecycle.readState(one.sessionId)).toEqual({})
  await lifecycle.writeState(one.sessionId, { step: 1, done: ['plan'] })
  await lifecycle.writeState(other.sessionId, { step: 9 })
  const advance = `import json
state = json.load(open("agent/state.json"))
state["step"] += 1
json.dump(state, open("agent/state.json", "w"))`
  expect((await lifecycle.executeCode(one.sessionId, advance)).status).toBe('completed')
  await server.client.sessions.stop(one.sessionId)
  await server.stop()
  await server.start()
  lifecycle = new Lifecycle(server.client)
  expect(await lifecycle.readState(one.sessionId)).toEqual({ step: 2, done: ['plan'] })
  expect(await lifecycle.readState(other.sessionId)).toEqual({ step: 9 })
  expect(await lifecycle.readAgentConfig(one.sessionId)).toEqual({ type: 'planner' })
  expect(await lifecycle.readAgentConfig(other.sessionId)).toBeUndefined()
  expect(await inDialect(`/api/sessions/${one.sessionId}`)).toMatchObject({
    state: { step: 2, done: ['plan'] },
    agent_config: { type: 'planner' },
    status: 'active',
  })
  await lifecycle.writeFile(one.sessionId, 'agent/state.json', 'no json')
  await expect(lifecycle.readState(one.sessionId)).rejects.toThrow('agent/state.json')
  for (const { sessionId } of [one, other]) await lifecycle.stop(sessionId)
})

test('logs and artifacts are there after the sandbox was stopped, files and state are not', async () => {
  const { sessionId } = await lifecycle.start()
  await lifecycle.writeState(sessionId, { step: 1 })
  const code = 'print("said")\nopen("report.csv", "w").write("a,b")'
  const { artifacts } = await lifecycle.executeCode(sessionId, code)
  expect(artifacts).toMatchObject([{ path: 'report.csv', isKept: true }])
  await lifecycle.stop(sessionId)
  const lines = (await lifecycle.logs(sessionId)).map((line) => line.text)
  expect(lines).toContain('said')
  const [kept] = await lifecycle.artifacts(sessionId)
  expect(kept).toMatchObject({ path: 'report.csv', size: 3 })
  if (kept) expect(await text(await lifecycle.downloadArtifact(sessionId, kept))).toBe('a,b')
  await expect(lifecycle.readState(sessionId)).rejects.toMatchObject({ code: 'session_ended' })
  await expect(lifecycle.readFile(sessionId, 'report.csv')).rejects.toMatchObject({ code: 'session_ended' })
})
