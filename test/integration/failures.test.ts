import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { SessionEvent, Turn } from '@ash-ai/sdk'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { deployTestAgent, endOf, scripted } from './support/conversation.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const MODEL_IDLE_TIMEOUT_MS = 1_500
const TURN_TIMEOUT_MS = 12_000

let server: TestServer
let openFilesBefore = 0
beforeAll(async () => {
  server = await startTestServer({
    env: {
      ASH_MODEL_IDLE_TIMEOUT_MS: String(MODEL_IDLE_TIMEOUT_MS),
      ASH_TURN_TIMEOUT_MS: String(TURN_TIMEOUT_MS),
      CLAUDE_CODE_MAX_RETRIES: '0',
    },
  })
  await deployTestAgent(server.client)
  // One session first: what the server opens once and keeps is not a leak.
  const { id } = await newSession()
  await server.client.sessions.send(id, scripted({ text: 'warm' })).text()
  await server.client.sessions.end(id)
  openFilesBefore = await openFiles()
})
afterAll(() => server.close())

const newSession = () => server.client.sessions.create({ agent: 'zebra' })
const openFiles = async () => (await readdir(`/proc/${server.pid()}/fd`)).length
const bash = (command: string) => ({ tool: 'Bash', input: { command, description: 'test' } })
const endlessTool = bash('touch running; timeout 60 tail -f /dev/null')

/** Starts a turn and waits until its tool runs inside the sandbox. */
async function startEndlessTurn(sessionId: string): Promise<Turn> {
  const turn = server.client.sessions.send(sessionId, scripted(endlessTool, { text: 'never' }))
  await eventually(
    () => server.client.files.list(sessionId),
    ({ files }) => files.some((file) => file.path === 'running'),
    20_000,
  )
  return turn
}

async function killInside(command: string): Promise<void> {
  const found = (await server.listSandboxProcesses()).filter((process) => process.command.startsWith(command))
  expect(found).toHaveLength(1)
  for (const { pid } of found) process.kill(pid, 'SIGKILL')
}

async function expectUsable(sessionId: string): Promise<void> {
  const answer = await server.client.sessions.send(sessionId, scripted({ text: 'heard: {{prompts}}' })).text()
  expect(answer).toContain('go') // The prompts of the turns before: the conversation was resumed.
  expect(await server.client.sessions.get(sessionId)).toMatchObject({ status: 'active' })
  await server.client.sessions.end(sessionId)
}

describe('what dies in the middle of a turn', () => {
  test('a killed bridge ends the stream with sandbox_died; the next message starts another sandbox', async () => {
    const { id } = await newSession()
    const turn = await startEndlessTurn(id)
    await killInside('/opt/ash/node /opt/ash/bridge')
    expect(await endOf(turn)).toMatchObject({ type: 'error', code: 'sandbox_died', retryable: true })
    const failed = await eventually(
      () => server.client.sessions.get(id),
      ({ status }) => status !== 'active',
    )
    expect(failed).toMatchObject({ status: 'error', error: { code: 'sandbox_died' } })
    await expectUsable(id)
  })

  test('an agent that kills its own bridge harms only itself', async () => {
    const { id } = await newSession()
    const end = await endOf(server.client.sessions.send(id, scripted(bash('kill -9 2'), { text: 'never' })))
    expect(end).toMatchObject({ type: 'error', code: 'sandbox_died' })
    await expectUsable(id)
  })

  test('a killed claude ends the stream with agent_crashed; the sandbox stays', async () => {
    const { id, sandboxId } = await newSession()
    const turn = await startEndlessTurn(id)
    await killInside('/opt/ash/claude')
    expect(await endOf(turn)).toMatchObject({ type: 'error', code: 'agent_crashed', retryable: true })
    expect(await server.client.sessions.get(id)).toMatchObject({ status: 'active', sandboxId })
    await expectUsable(id)
  })

  test('a client that leaves does not: the turn goes on and all of it is stored', async () => {
    const { id } = await newSession()
    const turn = server.client.sessions.send(
      id,
      scripted(bash('true'), { text: 'finished without you', firstTokenMs: 300 }),
    )
    for await (const event of turn) if (event.type === 'turn') break
    const { messages } = await eventually(
      () => server.client.sessions.messages(id),
      (page) => JSON.stringify(page).includes('finished without you'),
    )
    expect(messages.some(({ type }) => type === 'turn')).toBe(true)
    await eventually(
      async () =>
        await server.client.sessions
          .send(id, scripted({ text: 'next' }))
          .text()
          .catch((error: Error) => error.message),
      (text) => text === 'next',
    )
    await expectUsable(id)
  })
})

describe('a model API that fails', () => {
  test.each([
    ['is overloaded', { error: 529 }],
    ['refuses the key', { error: 401 }],
    ['is not the API at all', { malformed: 'html', repeat: 5 }],
    ['never answers', { hang: 'headers', repeat: 5 }],
    [
      'falls silent in the middle of an answer',
      { text: 'half an answer', chunkSize: 2, hang: 'mid', repeat: 5 },
    ],
    ['drops the connection', { disconnect: 'before', repeat: 5 }],
  ])('%s: a typed error, and the next turn works', async (_name, step) => {
    const { id } = await newSession()
    const end = await endOf(server.client.sessions.send(id, scripted(step)))
    expect(end).toMatchObject({ type: 'error', code: 'model_api_error' })
    await expectUsable(id)
  })
})

test('a turn that takes too long is stopped and says so; the session stays usable', async () => {
  const { id } = await newSession()
  const turn = await startEndlessTurn(id)
  expect(await endOf(turn)).toMatchObject({ type: 'error', code: 'turn_timeout' })
  await expectUsable(id)
})

test('a limit that the caller set ends the turn as asked', async () => {
  const { id } = await newSession()
  const turn = server.client.sessions.send(id, scripted(bash('true'), bash('true'), { text: 'never' }), {
    maxTurns: 1,
  })
  expect(await endOf(turn)).toMatchObject({ type: 'done', stopReason: 'max_turns' })
  await server.client.sessions.end(id)
})

test('every turn in the log has exactly one end', async () => {
  const { id } = await newSession()
  await endOf(server.client.sessions.send(id, scripted({ error: 401 })))
  await endOf(server.client.sessions.send(id, scripted({ text: 'fine' })))
  await server.client.sessions.end(id)
  const events: SessionEvent[] = []
  for await (const event of server.client.sessions.follow(id)) events.push(event)
  const turns = events.flatMap((event) => (event.type === 'turn' ? [event.turnId] : []))
  const ends = events.flatMap((event) =>
    event.type === 'done' || event.type === 'error' ? [event.turnId] : [],
  )
  expect(turns).toHaveLength(2)
  expect(ends).toEqual(turns)
})

test('nothing is left of any of this: no process, folder, socket or open file', async () => {
  await eventually(server.sandboxProcesses, (count) => count === 0)
  expect(await readdir(join(server.dataDir, 'sandboxes'))).toEqual([])
  expect((await server.client.health()).sandboxes.live).toBe(0)
  // Kept-alive connections to client and model come and go.
  await eventually(openFiles, (count) => count <= openFilesBefore + 5)
})
