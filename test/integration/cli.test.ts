import { chmod, mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Session, SessionEvent } from '@ash-ai/sdk'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { scripted } from './support/conversation.ts'
import { freePort, type ProcessResult, ROOT, runProcess } from './support/run-process.ts'
import { countSandboxProcesses, eventually, nextUidBase } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const BIN = join(ROOT, 'packages/cli/bin/ash.mjs')
const UNKNOWN_ID = '0b7c9a52-6f0e-4a3e-9f3a-3d1c3f0d7a11'

let server: TestServer
let folder: string
beforeAll(async () => {
  server = await startTestServer()
  folder = join(await mkdtemp(join(tmpdir(), 'ash-cli-')), 'my agent!')
  await mkdir(join(folder, 'bin'), { recursive: true })
  await writeFile(join(folder, 'CLAUDE.md'), '# Deployed by the command line')
  await writeFile(join(folder, '.env'), 'COLOUR=teal\n')
  await writeFile(join(folder, 'bin/tool.sh'), '#!/bin/sh\necho "tool in $COLOUR"\n')
  await chmod(join(folder, 'bin/tool.sh'), 0o755)
  await symlink('/etc/passwd', join(folder, 'link'))
})
afterAll(async () => {
  await server.close()
  await rm(join(folder, '..'), { recursive: true, force: true })
})

const access = () => ({ ASH_SERVER_URL: server.url, ASH_API_KEY: server.apiKey })
const ash = (args: string[], options: { env?: Record<string, string>; input?: string } = {}) =>
  runProcess(process.execPath, [BIN, ...args], { env: access(), ...options })

/** Runs with --json: every line of stdout must be a document. */
async function ashJson<Document = unknown>(...args: string[]): Promise<Document[]> {
  const { code, stdout, stderr } = await ash([...args, '--json'])
  expect([code, stderr]).toEqual([0, expect.not.stringContaining('error:')])
  expect(stdout.endsWith('\n')).toBe(true)
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Document)
}

/** The two lines of a failure: what happened and what to do next. */
function expectFailure({ code, stdout, stderr }: ProcessResult, exitCode: number, what: string): void {
  expect([code, stdout]).toEqual([exitCode, ''])
  expect(stderr).toContain(what)
  expect(stderr).toMatch(/error: .+\n {2}next: .+\n/)
}

describe('against a server', () => {
  let sessionId: string

  test('health says how it is, also where the command itself is run', async () => {
    const { code, stdout } = await runProcess(BIN, ['health'], { env: access() })
    expect(code).toBe(0)
    expect(stdout).toContain(`Healthy at ${server.url}`)
    expect(await ashJson('health')).toMatchObject([{ status: 'ok', isolation: 'bwrap' }])
  })

  test('deploy uploads the folder: scripts stay executable, .env becomes variables, links stay behind', async () => {
    const { code, stdout, stderr } = await ash(['deploy', folder])
    expect(code).toBe(0)
    expect(stdout).toContain('Deployed my-agent version 1')
    expect(stderr).toContain('skipped .env')
    expect(stderr).toContain('skipped link: a link')
    const { id } = await server.client.sessions.create({ agent: 'my-agent' })
    expect((await server.client.files.list(id)).files.map(({ path }) => path)).toEqual([
      'CLAUDE.md',
      'bin',
      'bin/tool.sh',
    ])
    const { stdout: output } = await server.client.sessions.exec(id, { command: 'bin/tool.sh' })
    expect(output).toBe('tool in teal\n')
    await server.client.sessions.end(id)
  })

  test('deploying the same again is the same version, with another variable the next', async () => {
    expect(await ashJson('deploy', folder)).toMatchObject([
      { agent: { version: 1, env: { COLOUR: '***' } }, files: 2 },
    ])
    expect(await ashJson('deploy', folder, '--env', 'COLOUR=red')).toMatchObject([{ agent: { version: 2 } }])
  })

  test('agent list and info show it', async () => {
    expect((await ash(['agent', 'list'])).stdout).toMatch(/NAME +VERSION +UPDATED\nmy-agent +2 /)
    expect(await ashJson('agent', 'list')).toMatchObject([{ agents: [{ name: 'my-agent', version: 2 }] }])
    expect((await ash(['agent', 'info', 'my-agent'])).stdout).toContain('COLOUR')
    expect(await ashJson('agent', 'info', 'my-agent')).toMatchObject([
      { agent: { name: 'my-agent' }, versions: [{ version: 2 }, { version: 1 }] },
    ])
  })

  test('session create prints an id and nothing else, and send the answer', async () => {
    const { code, stdout } = await ash(['session', 'create', 'my-agent', '--env', 'COLOUR=blue'])
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^[0-9a-f-]{36}\n$/)])
    sessionId = stdout.trim()
    const tool = { tool: 'Bash', input: { command: 'bin/tool.sh', description: 'test' } }
    const answer = await ash([
      'session',
      'send',
      sessionId,
      scripted(tool, { text: 'It said: {{toolResult}}' }),
    ])
    expect([answer.code, answer.stdout]).toEqual([0, 'It said: tool in blue\n'])
    expect(answer.stderr).toContain('⚙ Bash')
  })

  test('send takes the message from stdin, and with --json prints one event a line', async () => {
    const sent = await ash(['session', 'send', sessionId, '-'], {
      input: scripted({ text: 'read from stdin' }),
    })
    expect([sent.code, sent.stdout]).toEqual([0, 'read from stdin\n'])
    const events = await ashJson<SessionEvent>('session', 'send', sessionId, scripted({ text: 'as events' }))
    expect(events[0]).toMatchObject({ type: 'turn' })
    expect(events.at(-1)).toMatchObject({ type: 'done', sessionId, stopReason: 'end_turn' })
  })

  test('session list, get and end agree on it', async () => {
    expect((await ash(['session', 'list', '--agent', 'my-agent'])).stdout).toContain(sessionId)
    const [page] = await ashJson<{ sessions: Session[] }>('session', 'list', '--status', 'active')
    expect(page?.sessions.map(({ id }) => id)).toEqual([sessionId])
    expect(await ashJson('session', 'get', sessionId)).toMatchObject([
      { session: { id: sessionId, status: 'active' } },
    ])
    expect((await ash(['session', 'end', sessionId])).stdout).toBe(`✓ ${sessionId} is ended\n`)
    expect(await ashJson('session', 'end', sessionId)).toMatchObject([{ session: { status: 'ended' } }])
  })

  test('chat with a message prints the answer and leaves no session open', async () => {
    const { code, stdout } = await ash(['chat', 'my-agent', scripted({ text: 'Hello from chat' })])
    expect([code, stdout]).toEqual([0, 'Hello from chat\n'])
    const events = await ashJson<{ type: string }>('chat', 'my-agent', scripted({ text: 'Hello again' }))
    expect(events[0]).toMatchObject({ type: 'session', session: { agentName: 'my-agent' } })
    expect(events.at(-1)).toMatchObject({ type: 'done' })
    expect((await server.client.sessions.list({ status: 'active' })).sessions).toEqual([])
    expect((await server.client.health()).sandboxes.live).toBe(0)
  })

  test('chat without a message holds a conversation over stdin', async () => {
    const { code, stdout } = await ash(['chat', 'my-agent'], { input: 'one fish\ntwo fish\n' })
    expect([code, stdout]).toEqual([0, 'echo: one fish\necho: two fish\n'])
  })

  test('a turn that fails exits with 1 and says why, and leaves no session open', async () => {
    const failing = scripted({ error: { status: 400, message: 'the model says no' } })
    const { code, stderr } = await ash(['chat', 'my-agent', failing])
    expect(code).toBe(1)
    expect(stderr).toMatch(/error: .*the model says no/)
    expect((await server.client.sessions.list({ status: 'active' })).sessions).toEqual([])
    const asJson = await ash(['chat', 'my-agent', failing, '--json'])
    expect(asJson.code).toBe(1)
    const events = asJson.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as SessionEvent)
    expect(events.at(-1)).toMatchObject({ type: 'error', code: 'model_api_error' })
  })

  test('agent delete removes it', async () => {
    expect(await ashJson('agent', 'delete', 'my-agent')).toEqual([{ deleted: 'my-agent' }])
    expect(await ashJson('agent', 'list')).toEqual([{ agents: [] }])
  })
})

describe('exit codes', () => {
  test('2 for wrong usage', async () => {
    for (const args of [
      ['no-such-command'],
      ['deploy'],
      ['chat'],
      ['agent', 'list', '--limit', 'x'],
      ['session', 'list', '--status', 'asleep'],
      ['health', '--no-such-option'],
    ]) {
      const { code, stdout, stderr } = await ash(args)
      expect([args, code, stdout]).toEqual([args, 2, ''])
      expect(stderr).toContain('error:')
    }
    expectFailure(await ash(['deploy', '/no/such/folder']), 2, '/no/such/folder')
    expectFailure(await ash(['chat', 'x', ' ']), 2, 'empty')
    expectFailure(await ash(['health', '--url', 'ftp://x']), 2, 'ftp://x')
  })

  test('3 where no server answers', async () => {
    const env = { ASH_SERVER_URL: `http://127.0.0.1:${await freePort()}`, ASH_API_KEY: 'x' }
    for (const args of [['health'], ['agent', 'list', '--json']])
      expectFailure(await ash(args, { env }), 3, env.ASH_SERVER_URL)
    expect((await ash(['status', '--json'], { env })).code).toBe(3)
  })

  test('4 for a wrong key, and for none', async () => {
    const env = { ASH_SERVER_URL: server.url, ASH_DATA_DIR: '/nonexistent' }
    for (const key of [{ ASH_API_KEY: `${server.apiKey}x` }, {}]) {
      const result = await ash(['agent', 'list'], { env: { ...env, ...key } })
      expectFailure(result, 4, 'ASH_API_KEY')
      expect(result.stderr).not.toContain(server.apiKey)
    }
  })

  test('5 for an agent or session that does not exist', async () => {
    for (const args of [
      ['agent', 'info', 'nobody'],
      ['agent', 'delete', 'nobody', '--json'],
      ['session', 'create', 'nobody'],
      ['chat', 'nobody', 'hi'],
    ])
      expectFailure(await ash(args), 5, 'nobody')
    for (const command of ['get', 'end'])
      expectFailure(await ash(['session', command, UNKNOWN_ID]), 5, UNKNOWN_ID)
    expectFailure(await ash(['session', 'send', UNKNOWN_ID, 'hi']), 5, UNKNOWN_ID)
  })

  test('1 where the folder is no agent', async () => {
    expectFailure(await ash(['deploy', join(folder, 'bin')]), 1, 'CLAUDE.md')
  })
})

describe('a server of its own', () => {
  const uidBase = nextUidBase(100)
  let env: Record<string, string>
  beforeAll(async () => {
    env = {
      HOME: tmpdir(),
      ASH_DATA_DIR: join(await mkdtemp(join(tmpdir(), 'ash-own-')), 'data'),
      ASH_PORT: String(await freePort()),
      ASH_RUNTIME_DIR: join(tmpdir(), 'ash-test-runtime'),
      ASH_SANDBOX_UID_BASE: String(uidBase),
      ASH_SANDBOX_UID_COUNT: '100',
    }
    // As mkdtemp makes it, no sandbox user could pass.
    await chmod(join(env.ASH_DATA_DIR ?? '', '..'), 0o755)
  })
  afterAll(async () => {
    await ash(['stop'], { env })
    await rm(join(env.ASH_DATA_DIR ?? '', '..'), { recursive: true, force: true })
  })

  test('is started, used, seen, and stopped with all it runs', async () => {
    const { ASH_DATA_DIR: dataDir = '', ASH_PORT: port } = env
    const url = `http://127.0.0.1:${port}`
    expectFailure(await ash(['logs'], { env }), 5, dataDir)
    expect((await ash(['status'], { env })).code).toBe(3)

    const started = await ash(['start', '--json'], { env })
    expect(started.code).toBe(0)
    const facts = JSON.parse(started.stdout) as { pid: number }
    expect(facts).toMatchObject({ running: true, url, dataDir, keyFile: join(dataDir, 'api-key') })
    const again = await ash(['start', '--json'], { env })
    expect([again.code, JSON.parse(again.stdout)]).toEqual([0, facts])
    const status = await ash(['status', '--json'], { env })
    expect(JSON.parse(status.stdout)).toMatchObject({
      running: true,
      pid: facts.pid,
      health: { model: 'offline' },
    })

    await ash(['deploy', folder, '--name', 'own'], { env })
    const chat = await ash(['chat', 'own', 'hello', '--keep'], { env })
    expect([chat.code, chat.stdout]).toEqual([0, expect.stringContaining('[offline model]')])
    expect(await countSandboxProcesses(uidBase, 100)).toBeGreaterThan(0)

    const key = (await readFile(join(dataDir, 'api-key'), 'utf8')).trim()
    const logs = await ash(['logs', '--json'], { env })
    const messages = logs.stdout
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as { msg: string }).msg)
    expect(messages).toContain('Ash is listening')
    expect(logs.stdout + started.stdout + chat.stdout + chat.stderr).not.toContain(key)
    expect((await stat(join(dataDir, 'server.log'))).mode & 0o777).toBe(0o600)

    const stopped = await ash(['stop', '--json'], { env })
    expect([stopped.code, JSON.parse(stopped.stdout)]).toEqual([
      0,
      { stopped: true, pid: facts.pid, isKilled: false },
    ])
    await eventually(
      () => countSandboxProcesses(uidBase, 100),
      (count) => count === 0,
    )
    expect((await ash(['status'], { env })).code).toBe(3)
    const twice = await ash(['stop'], { env })
    expect([twice.code, twice.stdout]).toEqual([0, 'No server is running\n'])
  })

  test('that cannot start is reported with what its log says', async () => {
    const { code, stdout, stderr } = await ash(['start'], { env: { ...env, ASH_MAX_SANDBOXES: 'many' } })
    expect([code, stdout]).toEqual([1, ''])
    expect(stderr).toContain('ASH_MAX_SANDBOXES')
    expect((await ash(['status'], { env })).code).toBe(3)
  })
})
