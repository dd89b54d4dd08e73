import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { AshClient, PermissionRequest, PermissionSettings, SessionEvent, Turn } from '@ash-ai/sdk'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { bash, collect, deployTestAgent, readLog, scripted } from './support/conversation.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
beforeAll(async () => {
  server = await startTestServer()
  await deployTestAgent(server.client)
})
afterAll(() => server.close())

type RequestEvent = Extract<SessionEvent, { type: 'permission_request' }>
const requestsIn = (events: SessionEvent[]) =>
  events.filter((event): event is RequestEvent => event.type === 'permission_request')
const QUESTION = {
  question: 'Which colour?',
  header: 'Colour',
  multiSelect: false,
  options: [
    { label: 'Red', description: 'warm' },
    { label: 'Blue', description: 'cold' },
  ],
}
const SAW = { text: 'saw {{toolResult}}' }
const UNKNOWN_ID = '00000000-0000-4000-8000-000000000000'

/** A turn that reads itself to its end, whoever waits for it. */
interface ReadTurn {
  events: Promise<SessionEvent[]>
  answer: Promise<string>
}
function read(turn: Turn): ReadTurn {
  const events = collect(turn)
  const answer = events.then(async () => (await turn.result()).text)
  answer.catch(() => {})
  return { events, answer }
}

async function pendingOf(client: AshClient, id: string, count = 1): Promise<PermissionRequest[]> {
  return eventually(
    () => client.sessions.permissions(id),
    (list) => list.length === count,
    20_000,
  )
}

async function pendingOne(client: AshClient, id: string): Promise<PermissionRequest> {
  const [request] = await pendingOf(client, id)
  if (!request) throw new Error('no request')
  return request
}

async function newSession(permissions: PermissionSettings, more: object = {}): Promise<string> {
  return (await server.client.sessions.create({ agent: 'zebra', permissions, ...more })).id
}

describe('a tool that is asked about', () => {
  let id: string
  const sessions = () => server.client.sessions
  /** Sends a message whose tool call waits, and resolves when it does. */
  async function askFor(command: string): Promise<ReadTurn & { request: PermissionRequest }> {
    const turn = read(sessions().send(id, scripted(bash(command), SAW)))
    return { ...turn, request: await pendingOne(server.client, id) }
  }
  const exists = async (path: string) =>
    (await server.client.files.list(id)).files.some((file) => file.path === path)

  beforeAll(async () => {
    // Nothing but the list says so: the mode is bypassPermissions.
    id = await newSession({ ask: ['Bash', 'Web*'] })
  })
  afterAll(() => sessions().end(id))

  test('does not run before it is allowed; the request says what, and until when', async () => {
    const { request, events, answer } = await askFor('echo ran | tee allowed')
    expect(request).toMatchObject({
      kind: 'permission',
      tool: 'Bash',
      input: { command: 'echo ran | tee allowed', description: 'test' },
      toolUseId: expect.stringMatching(/^toolu_/),
      status: 'pending',
    })
    expect(Date.parse(request.expiresAt) - Date.parse(request.createdAt)).toBe(600_000)
    expect(await exists('allowed')).toBe(false)
    const resolution = await sessions().answer(id, request.requestId, { behavior: 'allow' })
    expect(resolution).toEqual({ requestId: request.requestId, turnId: request.turnId, status: 'allowed' })
    expect(await answer).toBe('saw ran')
    expect(await sessions().permissions(id)).toEqual([])
    const logged = requestsIn(await events)
    expect(logged).toMatchObject([request, resolution])
  })

  test('does not run when it is denied, and the model reads why', async () => {
    const { request, answer } = await askFor('touch denied')
    await sessions().answer(id, request.requestId, { behavior: 'deny', message: 'Not on a Sunday' })
    expect(await answer).toBe('saw Not on a Sunday')
    expect(await exists('denied')).toBe(false)
  })

  test('runs with the input that the answer gives', async () => {
    const { request, answer } = await askFor('touch original')
    const updatedInput = { command: 'touch changed; echo changed' }
    const resolution = await sessions().answer(id, request.requestId, { behavior: 'allow', updatedInput })
    expect(resolution).toMatchObject({ status: 'allowed', updatedInput })
    expect(await answer).toBe('saw changed')
    expect([await exists('original'), await exists('changed')]).toEqual([false, true])
  })

  test('is answered once: of many answers one counts, and the log has one resolution', async () => {
    const { request, events } = await askFor('true')
    const answers = await Promise.allSettled(
      [1, 2, 3, 4, 5].map(() => sessions().answer(id, request.requestId, { behavior: 'allow' })),
    )
    expect(answers.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    for (const answer of answers.filter(({ status }) => status === 'rejected')) {
      expect(answer).toMatchObject({ reason: { code: 'permission_settled', statusCode: 409 } })
    }
    expect(requestsIn(await events)).toHaveLength(2)
    const late = sessions().answer(id, request.requestId, { behavior: 'deny' })
    await expect(late).rejects.toMatchObject({
      code: 'permission_settled',
      message: expect.stringContaining('already allowed'),
    })
  })

  test('other ids, sessions and answers of the wrong form are refused, and the request still waits', async () => {
    const { request, answer } = await askFor('echo patient')
    const { requestId } = request
    const allow = { behavior: 'allow' } as const
    await expect(sessions().answer(id, UNKNOWN_ID, allow)).rejects.toMatchObject({
      code: 'permission_not_found',
    })
    await expect(sessions().answer(UNKNOWN_ID, requestId, allow)).rejects.toMatchObject({ statusCode: 404 })
    const other = await newSession({ ask: [] })
    await expect(sessions().answer(other, requestId, allow)).rejects.toMatchObject({
      code: 'permission_not_found',
    })
    expect(await sessions().permissions(other)).toEqual([])
    await sessions().end(other)
    for (const wrong of [
      {},
      { behavior: 'maybe' },
      { ...allow, updatedInput: 1 },
      { ...allow, answers: {} },
    ]) {
      await expect(sessions().answer(id, requestId, wrong as never)).rejects.toMatchObject({
        code: 'validation_failed',
      })
    }
    expect(await sessions().permissions(id)).toEqual([request])
    await sessions().answer(id, requestId, allow)
    expect(await answer).toBe('saw patient')
  })

  test('leaves other tools alone', async () => {
    const write = { tool: 'Write', input: { file_path: '/workspace/free.txt', content: 'free' } }
    const events = await collect(sessions().send(id, scripted(write, SAW)))
    expect(requestsIn(events)).toEqual([])
    expect(await exists('free.txt')).toBe(true)
  })

  test('is withdrawn by an interrupt, before the turn ends', async () => {
    const { request, events } = await askFor('touch interrupted')
    await sessions().interrupt(id)
    const last = (await events).slice(-2)
    expect(requestsIn(await events).at(-1)).toMatchObject({
      requestId: request.requestId,
      status: 'withdrawn',
    })
    expect(last.at(-1)).toMatchObject({ type: 'done', stopReason: 'interrupted' })
    expect(await exists('interrupted')).toBe(false)
    await expect(sessions().answer(id, request.requestId, { behavior: 'allow' })).rejects.toMatchObject({
      code: 'permission_settled',
    })
  })

  test('ends the turn when a denial says so, and the session goes on', async () => {
    const { request, events } = await askFor('true')
    await sessions().answer(id, request.requestId, { behavior: 'deny', interrupt: true })
    expect((await events).at(-1)).toMatchObject({ type: 'done', stopReason: 'interrupted' })
    expect(
      await sessions()
        .send(id, scripted({ text: 'here' }))
        .text(),
    ).toBe('here')
  })

  test('is shown once to a reader who comes back, before and after the answer', async () => {
    const { request, answer } = await askFor('echo again')
    const seen: SessionEvent[] = []
    for await (const event of sessions().follow(id)) {
      seen.push(event)
      if (event.type === 'permission_request' && event.requestId === request.requestId) break
    }
    const after = Number(seen.at(-1)?.id)
    await sessions().answer(id, request.requestId, { behavior: 'allow' })
    await answer
    for await (const event of sessions().follow(id, { after })) {
      seen.push(event)
      if (event.type === 'done') break
    }
    const own = requestsIn(seen).filter(({ requestId }) => requestId === request.requestId)
    expect(own.map(({ status }) => status)).toEqual(['pending', 'allowed'])
  })

  test('nobody is asked once a message says so', async () => {
    const quiet = { permissions: { ask: false } }
    const turn = sessions().send(id, scripted(bash('echo unasked'), SAW), quiet)
    expect(await turn.text()).toBe('saw unasked')
  })
})

describe('what is asked about', () => {
  test('with true, what the permission mode asks about; without a mode that is the SDK’s default', async () => {
    const id = await newSession({ ask: true })
    const free = bash('echo harmless')
    const turn = read(server.client.sessions.send(id, scripted(free, bash('touch made; echo made'), SAW)))
    const request = await pendingOne(server.client, id)
    expect(request.input).toMatchObject({ command: 'touch made; echo made' })
    await server.client.sessions.answer(id, request.requestId, { behavior: 'allow' })
    expect(await turn.answer).toBe('saw made')
    await server.client.sessions.end(id)
  })

  test('with true and bypassPermissions, every tool', async () => {
    const id = await newSession({ ask: true }, { permissionMode: 'bypassPermissions' })
    const turn = read(server.client.sessions.send(id, scripted(bash('echo gated'), SAW)))
    const request = await pendingOne(server.client, id)
    await server.client.sessions.answer(id, request.requestId, { behavior: 'deny', message: 'no' })
    expect(await turn.answer).toBe('saw no')
    await server.client.sessions.end(id)
  })

  test('with rules in the agent’s own settings, what they name', async () => {
    const settings = JSON.stringify({ permissions: { ask: ['Bash(touch:*)'] } })
    await deployTestAgent(server.client, 'ruled', { '.claude/settings.json': settings })
    const { sessions } = server.client
    const { id } = await sessions.create({ agent: 'ruled', permissions: { ask: [] } })
    const turn = read(sessions.send(id, scripted(bash('echo free'), bash('touch ruled; echo done'), SAW)))
    const request = await pendingOne(server.client, id)
    expect(request.input).toMatchObject({ command: 'touch ruled; echo done' })
    await sessions.answer(id, request.requestId, { behavior: 'allow' })
    expect(await turn.answer).toBe('saw done')
    await sessions.end(id)
  })

  test('without the setting nobody is: what a mode would ask about is refused, as ever', async () => {
    const { id } = await server.client.sessions.create({ agent: 'zebra', permissionMode: 'default' })
    const events = await collect(server.client.sessions.send(id, scripted(bash('touch refused'), SAW)))
    expect(requestsIn(events)).toEqual([])
    expect(JSON.stringify(events)).toContain('permission_denied')
    await server.client.sessions.end(id)
  })

  test('questions: the answers reach the agent', async () => {
    const id = await newSession({ ask: [] })
    const { sessions } = server.client
    const ask = { tool: 'AskUserQuestion', input: { questions: [QUESTION] } }
    const turn = read(sessions.send(id, scripted(ask, SAW)))
    const request = await pendingOne(server.client, id)
    expect(request).toMatchObject({
      kind: 'question',
      tool: 'AskUserQuestion',
      input: { questions: [QUESTION] },
    })
    await expect(sessions.answer(id, request.requestId, { behavior: 'allow' })).rejects.toMatchObject({
      code: 'validation_failed',
      details: [{ path: 'answers' }],
    })
    const answers = { 'Which colour?': 'Blue' }
    await sessions.answer(id, request.requestId, { behavior: 'allow', answers })
    expect(await turn.answer).toContain('"Which colour?"="Blue"')
    await sessions.end(id)
  })
})

describe('nobody answers', () => {
  test.each([
    ['deny', { text: 'saw Nobody answered within 0.3 s' }],
    ['interrupt', { stopReason: 'interrupted' }],
  ] as const)(
    '%s: the request expires and the turn goes on or ends as configured',
    async (onTimeout, outcome) => {
      const id = await newSession({ ask: ['Bash'], timeoutMs: 300, onTimeout })
      const turn = server.client.sessions.send(id, scripted(bash('touch late'), SAW))
      const events = await collect(turn)
      expect(await turn.result()).toMatchObject(outcome)
      const [asked, expired] = requestsIn(events)
      expect(asked).toMatchObject({ status: 'pending' })
      expect(expired).toMatchObject({ status: 'expired', message: 'Nobody answered within 0.3 s' })
      const late = server.client.sessions.answer(id, asked?.requestId ?? '', { behavior: 'allow' })
      await expect(late).rejects.toMatchObject({ code: 'permission_settled' })
      expect((await server.client.files.list(id)).files.map(({ path }) => path)).not.toContain('late')
      await server.client.sessions.end(id)
    },
  )
})

describe('the end of what waits', () => {
  test.each(['kill', 'stop'] as const)(
    'after the server’s %s the request is expired and its turn interrupted',
    async (how) => {
      const own = await startTestServer({ env: { ASH_SHUTDOWN_TIMEOUT_MS: '100' } })
      try {
        await deployTestAgent(own.client)
        const { id } = await own.client.sessions.create({ agent: 'zebra', permissions: { ask: ['Bash'] } })
        const turn = own.client.sessions.send(id, scripted(bash('touch never'), SAW))
        turn.result().catch(() => {})
        const { requestId } = await pendingOne(own.client, id)
        await own[how]()
        await own.start()
        const events = await readLog(own.client, id, 1)
        const end = events.slice(-2)
        expect(end).toMatchObject([
          { type: 'permission_request', requestId, status: 'expired', message: 'The server stopped' },
          { type: 'error', code: 'interrupted' },
        ])
        expect(requestsIn(events)).toHaveLength(2)
        expect(await own.client.sessions.permissions(id)).toEqual([])
        await expect(own.client.sessions.answer(id, requestId, { behavior: 'allow' })).rejects.toMatchObject({
          code: 'permission_settled',
          message: expect.stringContaining('expired'),
        })
      } finally {
        await own.close()
      }
    },
  )

  test('a sandbox that dies withdraws it, before the turn’s error', async () => {
    const id = await newSession({ ask: ['Bash'] })
    const turn = read(server.client.sessions.send(id, scripted(bash('true'), SAW)))
    const { requestId } = await pendingOne(server.client, id)
    const bridges = (await server.listSandboxProcesses()).filter(({ command }) =>
      command.startsWith('/opt/ash/node /opt/ash/bridge'),
    )
    for (const { pid } of bridges) process.kill(pid, 'SIGKILL')
    expect((await turn.events).slice(-2)).toMatchObject([
      { type: 'permission_request', requestId, status: 'withdrawn' },
      { type: 'error', code: 'sandbox_died' },
    ])
    await server.client.sessions.end(id)
  })
})

/** A bridge that sends the lines its prompt holds, shows what it is told, and ends its turn when interrupted. */
const HOSTILE_BRIDGE = `
import { Socket } from 'node:net'
import { createInterface } from 'node:readline'
const socket = new Socket({ fd: Number(process.env.ASH_BRIDGE_FD), readable: true, writable: true })
const send = (event) => socket.write(JSON.stringify(event) + '\\n')
let turn
let isDeaf = false
createInterface({ input: socket }).on('line', (line) => {
  const { cmd, id, content, requestId, decision } = JSON.parse(line)
  if (cmd === 'ping') return send({ ev: 'pong', id })
  if (cmd === 'permission' && isDeaf) return
  if (cmd !== 'query') send({ ev: 'result', id, data: {} })
  if (cmd === 'permission')
    socket.write('{"ev":"message","id":"' + turn + '","data":' +
      JSON.stringify({ type: 'decision', requestId, decision }) + '}\\n')
  if (cmd === 'interrupt') send({ ev: 'done', id: turn, data: { stopReason: 'interrupted' } })
  if (cmd !== 'query') return
  turn = id
  isDeaf = content.includes('deaf')
  for (const event of JSON.parse(content)) send({ id, ...event })
})
send({ ev: 'ready', id: 'session' })
`

describe('a hostile bridge', () => {
  let hostile: TestServer
  let folder: string
  const REQUEST = { ev: 'permission_request', kind: 'permission', tool: 'Bash', input: { command: 'ls' } }
  const send = (id: string, events: object[]) =>
    read(hostile.client.sessions.send(id, JSON.stringify(events)))

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'ash-hostile-'))
    await writeFile(join(folder, 'bridge.mjs'), HOSTILE_BRIDGE)
    hostile = await startTestServer({ env: { ASH_BRIDGE_ENTRY: join(folder, 'bridge.mjs') } })
    await deployTestAgent(hostile.client)
  })
  afterAll(async () => {
    await hostile.close()
    await rm(folder, { recursive: true })
  })

  test('asks for more than fits: the rest is denied at once and not stored', async () => {
    const { id } = await hostile.client.sessions.create({ agent: 'zebra' })
    const numbered = Array.from({ length: 40 }, (_, index) => ({ ...REQUEST, requestId: `r${index}` }))
    const turn = send(id, numbered)
    const pending = await pendingOf(hostile.client, id, 32)
    await hostile.client.sessions.interrupt(id)
    const events = await turn.events
    const denied = events.filter((event) => event.type === 'message')
    expect(denied).toHaveLength(8)
    for (const { message } of denied) {
      expect(message).toMatchObject({
        decision: { behavior: 'deny', message: expect.stringContaining('32') },
      })
    }
    const logged = requestsIn(events)
    expect(logged.filter(({ status }) => status === 'pending')).toHaveLength(32)
    const withdrawn = logged.filter(({ status }) => status === 'withdrawn').map(({ requestId }) => requestId)
    expect(withdrawn.sort()).toEqual(pending.map(({ requestId }) => requestId).sort())
    expect(events.at(-1)).toMatchObject({ type: 'done', stopReason: 'interrupted' })
    await hostile.client.sessions.end(id)
  })

  test('asks on and on and takes no answer: its sandbox ends', async () => {
    const { id } = await hostile.client.sessions.create({ agent: 'zebra' })
    const numbered = Array.from({ length: 200 }, (_, index) => ({ ...REQUEST, requestId: `deaf${index}` }))
    const events = await send(id, numbered).events
    expect(events.at(-1)).toMatchObject({ type: 'error', code: 'bridge_protocol_error' })
    const statuses = requestsIn(events).map(({ status }) => status)
    expect(statuses.filter((status) => status === 'withdrawn')).toHaveLength(32)
    expect(statuses).toHaveLength(64)
    await hostile.client.sessions.end(id)
  })

  test('repeats an id, adds fields and withdraws what it never asked: each request stays one of its own', async () => {
    const { id } = await hostile.client.sessions.create({ agent: 'zebra' })
    const forged = { ...REQUEST, requestId: 'same', status: 'allowed', turnId: 'forged', expiresAt: 'never' }
    const turn = send(id, [forged, forged, { ev: 'permission_withdrawn', requestId: 'other' }])
    const [first, second] = await pendingOf(hostile.client, id, 2)
    expect(first?.requestId).not.toBe(second?.requestId)
    expect(first).toMatchObject({ status: 'pending', turnId: expect.not.stringContaining('forged') })
    expect(first?.expiresAt).not.toBe('never')
    await hostile.client.sessions.answer(id, first?.requestId ?? '', { behavior: 'allow' })
    expect(await hostile.client.sessions.permissions(id)).toEqual([second])
    await hostile.client.sessions.interrupt(id)
    expect((await turn.events).at(-1)).toMatchObject({ type: 'done' })
    await hostile.client.sessions.end(id)
  })

  test.each([
    ['too large', { input: { text: 'x'.repeat(300_000) } }],
    ['without a tool', { tool: 7 }],
    ['for a path', { requestId: '../../x' }],
  ])('a request that is %s ends the sandbox, and nothing of it is stored', async (_name, change) => {
    const { id } = await hostile.client.sessions.create({ agent: 'zebra' })
    const turn = send(id, [{ ...REQUEST, requestId: 'r', ...change }])
    const events = await turn.events
    expect(events.at(-1)).toMatchObject({ type: 'error', code: 'bridge_protocol_error' })
    expect(requestsIn(events)).toEqual([])
    await hostile.client.sessions.end(id)
  })
})
