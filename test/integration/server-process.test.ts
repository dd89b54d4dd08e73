import { once } from 'node:events'
import { chmod, mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PostgresServer } from '@ash-ai/server/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { bash, deployTestAgent, readLog, scripted, startEndlessTurn } from './support/conversation.ts'
import { expectError, listEverything, request } from './support/refusals.ts'
import { runServer, takePort } from './support/run-process.ts'
import { eventually, listSandboxProcesses, nextUidBase } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const PROMPT_MARK = 'prompt-mark-4711'
const ENV_SECRET = 'session-env-secret-4711'
const AGENT_SECRET = 'agent-env-secret-4711'

const remember = scripted({ text: 'turn {{turn}}: {{prompts}}' })

describe('a server that is stopped and started again', () => {
  let server: TestServer
  let sessionId: string
  beforeAll(async () => {
    server = await startTestServer({ env: { ASH_LOG_LEVEL: 'trace', ASH_SHUTDOWN_TIMEOUT_MS: '5000' } })
    await deployTestAgent(server.client)
    await server.client.agents.deploy({
      name: 'keeper',
      systemPrompt: 'Keep it.',
      env: { TOKEN: AGENT_SECRET },
    })
    const session = await server.client.sessions.create({ agent: 'keeper', env: { SECRET: ENV_SECRET } })
    sessionId = session.id
    await server.client.sessions
      .send(sessionId, `${PROMPT_MARK} ${scripted(bash('echo kept > kept.txt'), { text: 'first' })}`)
      .text()
  })
  afterAll(() => server.close())

  /** What must be the same afterwards. Answers come from the database, so times and versions are compared too. */
  async function keptState() {
    const { agents } = await server.client.agents.list()
    const { messages } = await server.client.sessions.messages(sessionId)
    const { id, agentName, agentVersion, env, createdAt } = await server.client.sessions.get(sessionId)
    return { agents, messages, session: { id, agentName, agentVersion, env, createdAt } }
  }

  test.each(['SIGTERM', 'SIGKILL'])(
    'by %s keeps agents, sessions, messages and files, and the agent remembers',
    async (signal) => {
      const kept = await keptState()
      if (signal === 'SIGTERM') expect(await server.stop()).toBe(0)
      else await server.kill()
      await eventually(server.sandboxProcesses, (count) => count === 0)
      await server.start()
      expect(await keptState()).toEqual(kept)
      expect(await server.client.sessions.get(sessionId)).toMatchObject({ status: 'paused' })
      expect(await server.client.files.readText(sessionId, 'kept.txt')).toBe('kept\n')
      expect(await server.client.sessions.send(sessionId, remember).text()).toContain(PROMPT_MARK)
      const { stdout } = await server.client.sessions.exec(sessionId, { command: 'echo $SECRET $TOKEN' })
      expect(stdout).toBe(`${ENV_SECRET} ${AGENT_SECRET}\n`)
    },
  )

  test('killed in the middle of a turn leaves no process; the turn ends as interrupted and the session goes on', async () => {
    const { id } = await server.client.sessions.create({ agent: 'zebra' })
    await startEndlessTurn(server.client, id)
    expect(await server.sandboxProcesses()).toBeGreaterThan(0)
    await server.kill()
    await eventually(server.sandboxProcesses, (count) => count === 0)
    await server.start()
    expect(await server.client.sessions.get(id)).toMatchObject({ status: 'paused' })
    const log = await readLog(server.client, id, 1)
    const begun = log.find((event) => event.type === 'turn')
    expect(log.at(-1)).toMatchObject({
      type: 'error',
      code: 'interrupted',
      retryable: true,
      turnId: begun?.turnId,
    })
    expect(await server.client.sessions.send(id, remember).text()).toContain('touch running')
    const ends = (await readLog(server.client, id, 2)).filter(
      ({ type }) => type === 'done' || type === 'error',
    )
    expect(ends.map(({ type }) => type)).toEqual(['error', 'done'])
    await server.client.sessions.end(id)
  })

  test('stopped during a short turn lets it finish and stores it', async () => {
    const { id } = await server.client.sessions.create({ agent: 'zebra' })
    const prompt = scripted({ text: 'finished in time', firstTokenMs: 800 })
    const answer = server.client.sessions.send(id, prompt).text()
    await server.model.waitFor((seen) => seen.prompt === prompt)
    expect(await server.stop()).toBe(0)
    expect(await answer).toBe('finished in time')
    await server.start()
    const log = await readLog(server.client, id, 1)
    expect(log.at(-1)).toMatchObject({ type: 'done', stopReason: 'end_turn' })
    expect(JSON.stringify(log)).toContain('finished in time')
    expect(await server.client.sessions.get(id)).toMatchObject({ status: 'paused' })
    await server.client.sessions.end(id)
  })

  test('keeps its API key, in a file that only its owner can read', async () => {
    const { mode } = await stat(join(server.dataDir, 'api-key'))
    expect(mode & 0o777).toBe(0o600)
    const key = server.apiKey
    await server.stop()
    await server.start()
    expect(server.apiKey).toBe(key)
    expect((await server.client.agents.list()).agents).toHaveLength(2)
  })

  test('has no key, variable or prompt in its log, and none of the secrets in its database', async () => {
    const { apiKey, dataDir } = server
    const log = server.log()
    expect(log).toContain('Ash is listening')
    for (const secret of [apiKey, 'sk-real-key', ENV_SECRET, AGENT_SECRET, PROMPT_MARK])
      expect(log).not.toContain(secret)
    const names = (await readdir(dataDir)).filter((name) => name.startsWith('ash.db'))
    const bytes = Buffer.concat(await Promise.all(names.map((name) => readFile(join(dataDir, name)))))
    // The prompt is stored, which shows that the search finds what is there.
    expect(bytes.includes(PROMPT_MARK)).toBe(true)
    for (const secret of [apiKey, 'sk-real-key', ENV_SECRET, AGENT_SECRET])
      expect(bytes.includes(secret)).toBe(false)
  })

  test('is the only one on its data directory: a second is refused and told why', async () => {
    const { code, output } = await runServer({ ASH_PORT: '0', ASH_DATA_DIR: server.dataDir })
    expect(code).toBe(1)
    expect(output).toContain(`Another server uses ${server.dataDir}`)
    expect(await server.client.sessions.send(sessionId, scripted({ text: 'unharmed' })).text()).toBe(
      'unharmed',
    )
  })
})

test('a turn longer than the stop may wait ends with a typed error, and the stop in time', async () => {
  const server = await startTestServer({ env: { ASH_SHUTDOWN_TIMEOUT_MS: '200' } })
  try {
    await deployTestAgent(server.client)
    const { id } = await server.client.sessions.create({ agent: 'zebra' })
    const turn = await startEndlessTurn(server.client, id)
    const failure = turn.result().catch((error: unknown) => error)
    const stoppedAt = performance.now()
    expect(await server.stop()).toBe(0)
    expect(performance.now() - stoppedAt).toBeLessThan(10_000)
    await eventually(server.sandboxProcesses, (count) => count === 0)
    await server.start()
    expect(await failure).toBeInstanceOf(Error)
    const log = await readLog(server.client, id, 1)
    expect(log.at(-1)).toMatchObject({ type: 'error', code: 'interrupted', retryable: true })
    expect(await server.client.sessions.get(id)).toMatchObject({ status: 'paused' })
  } finally {
    await server.close()
  }
})

describe('a server with settings of its own', () => {
  let server: TestServer
  const apiKey = 'operators-own-key-4711'
  beforeAll(async () => {
    server = await startTestServer({ env: { ASH_API_KEY: apiKey, ASH_MAX_SANDBOXES: '1' } })
    await deployTestAgent(server.client)
  })
  afterAll(() => server.close())

  test('takes the key in ASH_API_KEY and writes no key file', async () => {
    await expect(server.client.agents.list()).resolves.toMatchObject({ agents: [{ name: 'zebra' }] })
    expectError(await request({ ...server, apiKey: `${apiKey}x` }, { path: '/api/agents' }), {
      status: 401,
      code: 'unauthorized',
    })
    expect(await readdir(server.dataDir)).not.toContain('api-key')
    expect(server.log()).not.toContain(apiKey)
  })

  test('refuses a session over ASH_MAX_SANDBOXES, leaves nothing of it, and takes it when there is room', async () => {
    const { id } = await server.client.sessions.create({ agent: 'zebra' })
    // One that does nothing would make room.
    const working = server.client.sessions.exec(id, { command: 'touch begun; sleep 60' })
    working.catch(() => {})
    await eventually(
      () => server.client.files.list(id),
      ({ files }) => files.some(({ path }) => path === 'begun'),
    )
    const before = await listEverything(server)
    const create = { method: 'POST', path: '/api/sessions', json: { agent: 'zebra' } }
    const refused = await request(server, create)
    const after = await listEverything(server)
    await server.client.sessions.end(id)
    const next = await request(server, create)
    expectError(refused, { status: 503, code: 'pool_full', names: 'ASH_MAX_SANDBOXES' })
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
    expect(next.status).toBe(201)
    await server.client.sessions.end((JSON.parse(next.text) as { session: { id: string } }).session.id)
    expect(after).toEqual(before)
  })

  test('answers on every platform route', async () => {
    expect(await server.client.health()).toMatchObject({
      status: 'ok',
      database: 'sqlite',
      isolation: 'bwrap',
      model: 'anthropic',
      sandboxes: { live: 0, max: 1 },
    })
    expect(await server.client.ready()).toEqual({ ready: true, checks: { database: 'ok', provider: 'ok' } })
    const metrics = await request(server, { path: '/metrics' })
    expect(metrics.text).toMatch(/^ash_sandboxes_max 1$/m)
    expect(metrics.text).toMatch(/^ash_sandbox_starts_total\{outcome="ok"\} \d+$/m)
    const bare = { ...server, apiKey: '' }
    const document = await request(bare, { path: '/openapi.json' })
    expect(JSON.parse(document.text)).toMatchObject({ openapi: '3.1.0', info: { title: 'Ash' } })
    const docs = await request(bare, { path: '/docs/' })
    expect([docs.status, docs.headers['content-type']]).toEqual([200, expect.stringContaining('text/html')])
  })

  test('a new version of an agent is for new sessions; a session keeps the one it began with', async () => {
    const { client } = server
    const cat = async (id: string) =>
      (await client.sessions.exec(id, { command: 'cat /agent/role.txt' })).stdout
    expect(await deployTestAgent(client, 'role', { 'role.txt': 'first' })).toMatchObject({ version: 1 })
    const old = await client.sessions.create({ agent: 'role' })
    expect(await cat(old.id)).toBe('first')
    expect(await deployTestAgent(client, 'role', { 'role.txt': 'first' })).toMatchObject({ version: 1 })
    expect(await deployTestAgent(client, 'role', { 'role.txt': 'second' })).toMatchObject({ version: 2 })
    await client.sessions.pause(old.id)
    const young = await client.sessions.create({ agent: 'role' })
    expect(young).toMatchObject({ agentVersion: 2 })
    expect(await cat(young.id)).toBe('second')
    await client.sessions.end(young.id)
    expect(await cat(old.id)).toBe('first')
    expect(await client.sessions.get(old.id)).toMatchObject({ agentVersion: 1 })
    expect((await client.agents.versions('role')).map(({ version }) => version)).toEqual([2, 1])
    await client.sessions.end(old.id)
  })
})

test('a server told to stop as soon as it listens stops in order', async () => {
  const server = await startTestServer()
  try {
    expect(await server.stop()).toBe(0)
    expect(server.log()).toContain('"msg":"stopping"')
  } finally {
    await server.close()
  }
})

test('a connection on which nothing was ever asked does not hold up the stop', async () => {
  const server = await startTestServer({ env: { ASH_SHUTDOWN_TIMEOUT_MS: '5000' } })
  const { hostname, port } = new URL(server.url)
  const unused = connect(Number(port), hostname).on('error', () => {})
  try {
    await once(unused, 'connect')
    // Once it has run a session it has long taken the connection, and is done with starting.
    await deployTestAgent(server.client)
    await server.client.sessions.end((await server.client.sessions.create({ agent: 'zebra' })).id)
    const stoppedAt = performance.now()
    expect(await server.stop()).toBe(0)
    expect(performance.now() - stoppedAt).toBeLessThan(3000)
  } finally {
    unused.destroy()
    await server.close()
  }
})

describe('a server that cannot start says why', () => {
  test('a wrong setting: exit code 2 and the name of the variable, not its value', async () => {
    const { code, output } = await runServer({
      ASH_PORT: 'abc',
      ASH_MAX_SANDBOXES: '-7',
      ASH_DATA_DIR: '/nonexistent',
    })
    expect(code).toBe(2)
    expect(output).toContain('ASH_PORT')
    expect(output).toContain('ASH_MAX_SANDBOXES')
    expect(output).not.toContain('abc')
  })

  test('a port that is taken: exit code 1 and the port', async () => {
    await using taken = await takePort()
    const dataDir = await mkdtemp(join(tmpdir(), 'ash-test-'))
    const { code, output } = await runServer({
      ASH_PORT: String(taken.port),
      ASH_DATA_DIR: dataDir,
      ASH_RUNTIME_DIR: join(tmpdir(), 'ash-test-runtime'),
    })
    await rm(dataDir, { recursive: true })
    expect(code).toBe(1)
    expect(output).toMatch(new RegExp(`address already in use .*:${taken.port}`))
  })

  test('a data directory that sandbox users cannot reach: not ready, and the folder and the remedy are named', async () => {
    const closed = await mkdtemp(join(tmpdir(), 'ash-closed-'))
    await chmod(closed, 0o700)
    const server = await startTestServer({ env: { ASH_DATA_DIR: join(closed, 'data'), ASH_API_KEY: 'key' } })
    try {
      const reply = await request(server, { path: '/ready' })
      expect(reply.status).toBe(503)
      const { checks } = JSON.parse(reply.text) as { checks: Record<string, string> }
      expect(checks).toMatchObject({
        database: 'ok',
        provider: expect.stringContaining(`chmod o+x ${closed}`),
      })
      await deployTestAgent(server.client)
      const create = { method: 'POST', path: '/api/sessions', json: { agent: 'zebra' } }
      expectError(await request(server, create), { status: 503, code: 'provider_unavailable', names: closed })
      expect((await server.client.sessions.list()).sessions).toEqual([])
      await chmod(closed, 0o711)
      const { id } = await server.client.sessions.create({ agent: 'zebra' })
      await server.client.sessions.end(id)
      expect(await server.client.ready()).toMatchObject({ ready: true })
    } finally {
      await server.close()
      await rm(closed, { recursive: true })
    }
  })
})

test('a server without privileges runs a whole turn in user namespaces', async () => {
  const uid = nextUidBase(1)
  // Its own runtime folder: what root has staged is not what it would stage.
  const server = await startTestServer({ user: { uid, gid: uid }, env: { ASH_RUNTIME_DIR: '' } })
  try {
    await deployTestAgent(server.client)
    const session = await server.client.sessions.create({ agent: 'zebra' })
    expect(session).toMatchObject({ status: 'active', isolation: 'bwrap' })
    const prompt = scripted(bash('id -u; hostname; echo made > made.txt'), { text: '{{toolResult}}' })
    expect(await server.client.sessions.send(session.id, prompt).text()).toBe('1000\nash')
    expect(await server.client.files.readText(session.id, 'made.txt')).toBe('made\n')
    const own = () => listSandboxProcesses(uid, 1)
    expect((await own()).some(({ command }) => command.includes('/opt/ash/claude'))).toBe(true)
    await server.client.sessions.end(session.id)
    await eventually(
      async () => (await own()).map(({ pid }) => pid),
      (pids) => pids.length === 1 && pids[0] === server.pid(),
    )
  } finally {
    await server.close()
  }
})

test('a server on Postgres runs a turn and remembers it after a restart', async () => {
  const postgres = await PostgresServer.start()
  const { url } = await postgres.createDatabase('ash')
  const server = await startTestServer({ env: { ASH_DATABASE_URL: url } })
  try {
    expect(await server.client.health()).toMatchObject({ database: 'postgres' })
    await deployTestAgent(server.client)
    const { id } = await server.client.sessions.create({ agent: 'zebra' })
    await server.client.sessions.send(id, `${PROMPT_MARK} ${scripted({ text: 'stored' })}`).text()
    const { messages } = await server.client.sessions.messages(id)
    await server.kill()
    await server.start()
    expect(await server.client.sessions.get(id)).toMatchObject({ status: 'paused' })
    expect((await server.client.sessions.messages(id)).messages).toEqual(messages)
    expect(await server.client.sessions.send(id, remember).text()).toContain(PROMPT_MARK)
    await server.client.sessions.end(id)
    expect(await readdir(server.dataDir)).not.toContain('ash.db')
  } finally {
    await server.close()
  }
})
