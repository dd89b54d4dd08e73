import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type MessagesApi, type RecordedRequest, startMessagesApi } from '@ash-ai/offline-model'
import { BridgeClient } from '@ash-ai/sandbox'
import { listProcesses, type ProcessInfo } from '@ash-ai/sandbox/testing'
import { type BridgeEvent, type ExecResult, isAshError, type TurnDone } from '@ash-ai/shared'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { workspaceRuntime } from '../isolation/support/runtime-source.ts'

// The bundled bridge and the real agent SDK as plain processes, without a sandbox around them.

const { node, bridge: bundle, claude } = workspaceRuntime()
let root: string
let api: MessagesApi
const children: ChildProcess[] = []

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'ash-bridge-'))
  api = await startMessagesApi({ socketPath: join(root, 'model.sock') })
})
afterAll(async () => {
  // Those of tests that failed before they stopped their bridge.
  await Promise.all(children.filter(({ exitCode }) => exitCode === null).map(endProcess))
  await api.close()
  await rm(root, { recursive: true, force: true })
})
beforeEach(() => api.reset())

interface RunningBridge {
  child: ChildProcess
  client: BridgeClient
  stderr: () => string
}

/** A session's folders; several bridges may follow each other on them. */
class Session {
  readonly home: string
  readonly workspace: string
  sdkSessionId: string | undefined

  constructor(name: string) {
    this.home = join(root, name, 'home')
    this.workspace = join(root, name, 'workspace')
  }

  async startBridge({ configure = true, agent = claude } = {}): Promise<RunningBridge> {
    await mkdir(this.home, { recursive: true })
    await mkdir(this.workspace, { recursive: true })
    await writeFile(join(this.workspace, 'CLAUDE.md'), 'You are a test.\n')
    const child = spawn(node, [bundle], {
      cwd: this.workspace,
      stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
      env: {
        PATH: '/usr/local/bin:/usr/bin:/bin',
        HOME: this.home,
        TMPDIR: tmpdir(),
        LANG: 'C.UTF-8',
        TERM: 'dumb',
        ASH_SANDBOX_ID: 'sandbox-1',
        ASH_AGENT_DIR: this.workspace,
        ASH_WORKSPACE_DIR: this.workspace,
        ASH_MODEL_SOCKET: join(root, 'model.sock'),
        ASH_EGRESS_SOCKET: join(root, 'egress.sock'),
        ASH_CLAUDE: agent,
        ASH_BRIDGE_FD: '3',
        IS_SANDBOX: '1',
        CLAUDE_CODE_MAX_RETRIES: '1',
      },
    })
    children.push(child)
    let stderr = ''
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      stderr += text
    })
    const client = new BridgeClient(child.stdio[3] as Socket)
    await client.ready
    if (configure) {
      const { sdkSessionId } = this
      const session = {
        sessionId: 's',
        env: { OWN: 'value' },
        modelToken: 'token',
        ...(sdkSessionId && { sdkSessionId }),
      }
      await client.call({ cmd: 'configure', session })
    }
    return { child, client, stderr: () => stderr }
  }

  /** What runs with this session's home: bridge, agent and all they started. */
  async processes(): Promise<ProcessInfo[]> {
    return (await listProcesses()).filter(({ environ }) => environ.includes(`HOME=${this.home}`))
  }

  async agentPids(): Promise<number[]> {
    return (await this.processes()).filter(({ args }) => args[0] === claude).map(({ pid }) => pid)
  }
}

interface TurnResult {
  events: BridgeEvent[]
  done: TurnDone | undefined
  error: { code: string; error: string } | undefined
}

/** Runs a turn to its end. */
async function turn(
  { client }: RunningBridge,
  content: string,
  options: Record<string, unknown> = {},
): Promise<TurnResult> {
  const events: BridgeEvent[] = []
  const end = await client.run({ cmd: 'query', content, options }, (event) => void events.push(event))
  return {
    events: [...events, end],
    done: end.ev === 'done' ? end.data : undefined,
    error: end.ev === 'error' ? end : undefined,
  }
}

function answerOf({ events }: TurnResult): string {
  const messages = events.flatMap((event) => (event.ev === 'message' ? [JSON.parse(event.json)] : []))
  return messages.find(({ type }) => type === 'result')?.result
}

function sdkSessionIdOf({ events }: TurnResult): string | undefined {
  return events.flatMap((event) =>
    event.ev === 'message' && event.sdkSessionId ? [event.sdkSessionId] : [],
  )[0]
}

const scripted = (...steps: object[]) => `go\n!script ${JSON.stringify(steps)}`
const isHanging = ({ prompt }: RecordedRequest) => prompt.includes('"hang"')
const lastRequest = () => api.requests.filter(({ aux }) => !aux).at(-1)

async function endProcess(child: ChildProcess): Promise<void> {
  const exited = once(child, 'exit')
  child.kill('SIGKILL')
  await exited
}

async function stop({ client, child }: RunningBridge): Promise<number | null> {
  if (child.exitCode !== null) return child.exitCode
  const exited = once(child, 'exit')
  await client.call({ cmd: 'shutdown' })
  return (await exited)[0]
}

describe('one bridge over many turns', () => {
  let session: Session
  let bridge: RunningBridge
  let agentPid: number | undefined

  beforeAll(async () => {
    session = new Session('many-turns')
    bridge = await session.startBridge()
  })
  afterAll(() => stop(bridge))

  test('a message is answered and its turn ends', async () => {
    const result = await turn(bridge, 'hello')
    expect(answerOf(result)).toBe('echo: hello')
    expect(result.done).toMatchObject({
      stopReason: 'end_turn',
      usage: { output_tokens: expect.any(Number) },
    })
    expect(result.done).not.toHaveProperty('reopened')
    expect(result.events.some((event) => event.ev === 'message' && event.type === 'assistant')).toBe(true)
    expect(lastRequest()?.headers['x-api-key']).toBe('token')
    ;[agentPid] = await session.agentPids()
    expect(agentPid).toBeDefined()
  })

  test('the next turn remembers and starts no process', async () => {
    expect(answerOf(await turn(bridge, 'again'))).toBe('echo: again')
    expect(lastRequest()?.prompts).toEqual(['hello', 'again'])
    expect(await session.agentPids()).toEqual([agentPid])
  })

  test('another model is used at once by the same process', async () => {
    const { done } = await turn(bridge, 'with another model', { model: 'claude-test-model' })
    expect(done).toMatchObject({ stopReason: 'end_turn' })
    expect(done).not.toHaveProperty('reopened')
    expect(lastRequest()?.model).toBe('claude-test-model')
    expect(await session.agentPids()).toEqual([agentPid])
  })

  test('an option that cannot change live opens a new process that remembers, and the turn says so', async () => {
    const { done } = await turn(bridge, 'with another tool', {
      model: 'claude-test-model',
      disallowedTools: ['WebFetch'],
    })
    expect(done?.reopened).toEqual(['disallowedTools'])
    expect(lastRequest()?.tools).not.toContain('WebFetch')
    expect(lastRequest()?.prompts).toEqual(['hello', 'again', 'with another model', 'with another tool'])
    const pids = await session.agentPids()
    expect(pids).toHaveLength(1)
    expect(pids).not.toContain(agentPid)
    ;[agentPid] = pids
  })

  test('a tool writes into the workspace', async () => {
    const step = { tool: 'Bash', input: { command: 'echo written > out.txt && cat out.txt' } }
    const result = await turn(bridge, scripted(step, { text: 'saw {{toolResult}}' }), {
      disallowedTools: ['WebFetch'],
    })
    expect(answerOf(result)).toContain('saw written')
    const exec = await bridge.client.call({
      cmd: 'exec',
      command: 'cat out.txt; echo $OWN',
      timeoutMs: 5_000,
    })
    expect(exec).toMatchObject({ stdout: 'written\nvalue\n', exitCode: 0 })
  })

  test('during a turn commands run, a second turn is refused, and an interrupt ends the first', async () => {
    const running = turn(bridge, scripted({ text: 'partial', hang: 'mid' }), {
      disallowedTools: ['WebFetch'],
    })
    await api.waitFor(isHanging)
    const exec = (await bridge.client.call({
      cmd: 'exec',
      command: 'echo during',
      timeoutMs: 5_000,
    })) as ExecResult
    expect(exec.stdout).toBe('during\n')
    expect((await turn(bridge, 'too early')).error).toMatchObject({ code: 'turn_in_progress' })
    await expect(bridge.client.call({ cmd: 'resume', options: {} })).rejects.toMatchObject({
      code: 'turn_in_progress',
    })
    expect(await bridge.client.call({ cmd: 'interrupt' })).toEqual({ interrupted: true })
    expect((await running).done?.stopReason).toBe('interrupted')
    expect(await bridge.client.call({ cmd: 'interrupt' })).toEqual({ interrupted: false })
  })

  test('after an interrupt the same process goes on', async () => {
    const [before] = await session.agentPids()
    expect(answerOf(await turn(bridge, 'after', { disallowedTools: ['WebFetch'] }))).toBe('echo: after')
    expect(await session.agentPids()).toEqual([before])
  })

  test('an agent killed in the middle fails its turn; the next one works and remembers', async () => {
    const running = turn(bridge, scripted({ text: 'partial', hang: 'mid' }), {
      disallowedTools: ['WebFetch'],
    })
    await api.waitFor(isHanging)
    for (const pid of await session.agentPids()) process.kill(pid, 'SIGKILL')
    expect((await running).error).toMatchObject({
      code: 'agent_crashed',
      error: expect.stringMatching(/SIGKILL|terminated/),
    })
    expect(answerOf(await turn(bridge, 'recovered', { disallowedTools: ['WebFetch'] }))).toBe(
      'echo: recovered',
    )
    expect(lastRequest()?.prompts.slice(0, 2)).toEqual(['hello', 'again'])
  })

  test('an agent killed between turns costs at most one turn, which says so', async () => {
    const [killed] = await session.agentPids()
    process.kill(killed ?? 0, 'SIGKILL')
    await expect.poll(() => session.agentPids()).toEqual([])
    const options = { disallowedTools: ['WebFetch'] }
    const first = await turn(bridge, 'anybody here', options)
    expect(first.error?.code ?? answerOf(first)).toMatch(/^(agent_crashed|echo: anybody here)$/)
    expect(answerOf(await turn(bridge, 'still here', options))).toBe('echo: still here')
  })

  test.each([
    ['401', { error: 401, repeat: 4 }],
    ['529', { error: 529, repeat: 4 }],
    ['400', { error: 400, repeat: 4 }],
    ['a web page', { malformed: 'html', repeat: 4 }],
  ])('a model API that answers %s fails the turn and not the session', async (_, step) => {
    const { error } = await turn(bridge, scripted(step), { disallowedTools: ['WebFetch'] })
    expect(error).toMatchObject({ code: 'model_api_error' })
    expect(answerOf(await turn(bridge, 'better', { disallowedTools: ['WebFetch'] }))).toBe('echo: better')
  })

  test('a limit that the caller set ends the turn as asked', async () => {
    const step = { tool: 'Bash', input: { command: 'true' } }
    const { done } = await turn(bridge, scripted(step, step, step), { maxTurns: 1 })
    expect(done).toMatchObject({ stopReason: 'max_turns', reopened: ['disallowedTools', 'maxTurns'] })
  })

  test('a shutdown ends bridge and agent with exit code 0', async () => {
    expect(await stop(bridge)).toBe(0)
    await expect.poll(() => session.processes()).toEqual([])
    expect(bridge.stderr()).toBe('')
  })
})

test('a bridge that has not been configured refuses turns and says why', async () => {
  const bridge = await new Session('unconfigured').startBridge({ configure: false })
  expect((await turn(bridge, 'hello')).error).toMatchObject({
    code: 'agent_failed',
    error: expect.stringContaining('configured'),
  })
  await stop(bridge)
})

test('a new bridge on the same home resumes the conversation; without its transcript it begins anew', async () => {
  const session = new Session('resumed')
  const first = await session.startBridge()
  session.sdkSessionId = sdkSessionIdOf(await turn(first, 'remember me'))
  expect(session.sdkSessionId).toBeDefined()
  await stop(first)

  const second = await session.startBridge()
  expect(await second.client.call({ cmd: 'resume', options: {} })).toEqual({ resumed: true })
  expect(answerOf(await turn(second, 'and now'))).toBe('echo: and now')
  expect(lastRequest()?.prompts).toEqual(['remember me', 'and now'])
  expect(await session.agentPids()).toHaveLength(1)
  await stop(second)

  await rm(join(session.home, '.claude'), { recursive: true })
  const third = await session.startBridge()
  expect(answerOf(await turn(third, 'who am I'))).toBe('echo: who am I')
  expect(lastRequest()?.prompts).toEqual(['who am I'])
  await stop(third)
})

test('opening ahead and a turn at the same moment share one agent process', async () => {
  const session = new Session('opened-ahead')
  const bridge = await session.startBridge()
  const opened = bridge.client.call({ cmd: 'resume', options: {} })
  const result = await turn(bridge, 'hello')
  expect(await opened).toEqual({ resumed: false })
  expect(answerOf(result)).toBe('echo: hello')
  expect(await session.agentPids()).toHaveLength(1)
  await stop(bridge)
})

test('a turn that is interrupted before its agent has started still ends', async () => {
  const session = new Session('interrupted-early')
  const bridge = await session.startBridge()
  const running = turn(bridge, scripted({ text: 'partial', hang: 'mid' }))
  expect(await bridge.client.call({ cmd: 'interrupt' })).toEqual({ interrupted: true })
  expect((await running).done?.stopReason).toBe('interrupted')
  expect(answerOf(await turn(bridge, 'after'))).toBe('echo: after')
  await stop(bridge)
})

test('an agent that cannot be started fails the turn and leaves the bridge alive', async () => {
  const bridge = await new Session('no-agent').startBridge({ agent: '/nonexistent/claude' })
  const { error } = await turn(bridge, 'hello')
  expect(error).toMatchObject({
    code: 'agent_crashed',
    error: expect.stringContaining('/nonexistent/claude'),
  })
  expect(await bridge.client.call({ cmd: 'exec', command: 'echo alive', timeoutMs: 5_000 })).toMatchObject({
    stdout: 'alive\n',
  })
  await stop(bridge)
})

test('a host that goes away in the middle of everything leaves no process', async () => {
  const session = new Session('host-gone')
  const bridge = await session.startBridge()
  const running = turn(bridge, scripted({ text: 'partial', hang: 'mid' })).catch((error: unknown) => error)
  const exec = bridge.client
    .call({ cmd: 'exec', command: 'sleep 1000 & sleep 1000', timeoutMs: 60_000 })
    .catch((error: unknown) => error)
  await api.waitFor(isHanging)
  await expect
    .poll(async () => (await session.processes()).filter(({ args }) => args[0] === 'sleep'))
    .toHaveLength(2)
  const exited = once(bridge.child, 'exit')
  ;(bridge.child.stdio[3] as Socket).destroy()
  expect((await exited)[0]).toBe(0)
  await expect.poll(() => session.processes(), { timeout: 5_000 }).toEqual([])
  expect(isAshError(await running, 'sandbox_died')).toBe(true)
  expect(isAshError(await exec, 'sandbox_died')).toBe(true)
})
