import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { bash, collect, deployTestAgent, scripted, startEndlessTurn } from './support/conversation.ts'
import { expectRefused, invalid, post, request } from './support/refusals.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let sessionId: string
beforeAll(async () => {
  server = await startTestServer({ env: { ASH_SHUTDOWN_TIMEOUT_MS: '500' } })
  await deployTestAgent(server.client)
})
afterAll(() => server.close())
beforeEach(async () => {
  sessionId = (await server.client.sessions.create({ agent: 'zebra' })).id
})
afterEach(() => server.client.sessions.end(sessionId))

const messagesPath = () => `/api/sessions/${sessionId}/messages`
const say = (text: string) => scripted({ text })

/** The turns of the log, each with what it was asked and how it ended. */
async function turnsInLog() {
  const { events } = await server.client.sessions.events(sessionId, { types: ['turn', 'done', 'error'] })
  return events.map(({ type, turnId, data }) => ({ type, turnId, ...(data as Record<string, unknown>) }))
}

const ends = async () => (await turnsInLog()).filter(({ type }) => type !== 'turn')

describe('a message whose client wants JSON', () => {
  test('is answered with the outcome of its turn', async () => {
    const raw = {
      ...post(messagesPath(), { content: say('forty-two') }),
      headers: { accept: 'application/json' },
    }
    const reply = await request(server, raw)
    expect(reply.status).toBe(200)
    expect(JSON.parse(reply.text)).toMatchObject({
      sessionId,
      turnId: reply.headers['x-ash-turn-id'],
      stopReason: 'end_turn',
      result: 'forty-two',
      message: { type: 'result', subtype: 'success' },
    })
    expect(reply.headers['server-timing']).toMatch(
      /^lookup;dur=[\d.]+, accepted;dur=[\d.]+, .*done;dur=[\d.]+$/,
    )
  })

  test('is answered with the error that ended it', async () => {
    const failing = { content: scripted({ status: 400, error: 'no such thing' }) }
    const raw = { ...post(messagesPath(), failing), headers: { accept: 'application/json' } }
    await expectRefused(server, raw, { status: 502, code: 'model_api_error' })
  })

  test('streams when it accepts both', async () => {
    const accept = 'text/event-stream, application/json'
    const reply = await request(server, {
      ...post(messagesPath(), { content: say('hi') }),
      headers: { accept },
    })
    expect(reply.headers['content-type']).toMatch(/^text\/event-stream/)
    expect(reply.text).toMatch(/\nevent: done\n/)
  })
})

test('with ?async a message is answered as soon as it is durable', async () => {
  const { client } = server
  const accepted = await client.sessions.sendAsync(sessionId, say('later'))
  expect(accepted).toEqual({ turnId: expect.stringMatching(/^[0-9a-f-]{36}$/), status: 'running' })
  expect((await turnsInLog())[0]).toMatchObject({ type: 'turn', turnId: accepted.turnId })
  const [end] = await eventually(ends, (found) => found.length === 1)
  expect(end).toMatchObject({ type: 'done', turnId: accepted.turnId })
})

describe('a message sent twice with one key', () => {
  const headers = { 'idempotency-key': 'k-1' }

  test('is one turn, and the second request gets all of it', async () => {
    const raw = { ...post(messagesPath(), { content: say('once') }), headers }
    const first = await request(server, raw)
    const second = await request(server, raw)
    expect(second.text).toBe(first.text)
    expect(second.headers['x-ash-turn-id']).toBe(first.headers['x-ash-turn-id'])
    expect(await turnsInLog()).toHaveLength(2)
  })

  test('is one turn also when both come at the same time, and after a restart', async () => {
    const raw = { ...post(messagesPath(), { content: say('once') }), headers }
    const [first, second] = await Promise.all([request(server, raw), request(server, raw)])
    expect(second.text).toBe(first.text)
    await server.kill()
    await server.start()
    const third = await request(server, raw)
    expect(third.text).toBe(first.text)
    expect(await turnsInLog()).toHaveLength(2)
    expect((await server.client.sessions.get(sessionId)).status).toBe('paused')
  })

  test('is refused if it is another message', async () => {
    await request(server, { ...post(messagesPath(), { content: say('once') }), headers })
    const other = { ...post(messagesPath(), { content: say('twice') }), headers }
    await expectRefused(server, other, { status: 409, code: 'idempotency_conflict' })
  })

  test('begins with its second request if the first was refused', async () => {
    const { client } = server
    const running = await startEndlessTurn(client, sessionId)
    const raw = { ...post(messagesPath(), { content: say('at last') }), headers }
    await expectRefused(server, raw, { status: 409, code: 'turn_in_progress' })
    await client.sessions.interrupt(sessionId)
    await running.result()
    expect((await request(server, raw)).text).toContain('at last')
  })

  test('is taken for two in two sessions', async () => {
    const other = await server.client.sessions.create({ agent: 'zebra' })
    for (const id of [sessionId, other.id]) {
      await server.client.sessions.send(id, say('mine'), { idempotencyKey: 'shared' }).text()
    }
    const { events } = await server.client.sessions.events(other.id, { types: ['turn'] })
    expect(events).toHaveLength(1)
    await server.client.sessions.end(other.id)
  })

  test.each(['', 'with space', 'x'.repeat(256), 'é'])('is refused with the key %j', async (key) => {
    const raw = { ...post(messagesPath(), { content: 'x' }), headers: { 'idempotency-key': key } }
    await expectRefused(server, raw, invalid('idempotency-key'))
  })
})

describe('messages with queue: true', () => {
  test('wait for the turn before them and run in the order they came', async () => {
    const { client } = server
    const first = client.sessions.send(sessionId, scripted(bash('sleep 1'), { text: 'first' }))
    await eventually(turnsInLog, (turns) => turns.length === 1)
    const rest = ['second', 'third', 'fourth'].map((text) =>
      client.sessions.send(sessionId, say(text), { queue: true }),
    )
    expect(await Promise.all([first, ...rest].map((turn) => turn.text()))).toEqual([
      'first',
      'second',
      'third',
      'fourth',
    ])
    const types = (await turnsInLog()).map(({ type }) => type)
    expect(types).toEqual(Array(4).fill(['turn', 'done']).flat())
  })

  test('begin at once where nothing runs, and other messages are refused while some wait', async () => {
    const { client } = server
    const running = await startEndlessTurn(client, sessionId)
    expect(await client.sessions.sendAsync(sessionId, say('b'), { queue: true })).toMatchObject({
      status: 'queued',
    })
    await expectRefused(server, post(messagesPath(), { content: 'x' }), {
      status: 409,
      code: 'turn_in_progress',
      names: '"queue": true',
    })
    await client.sessions.interrupt(sessionId)
    await running.result()
    await eventually(ends, (found) => found.length === 2)
    expect(await client.sessions.send(sessionId, say('c'), { queue: true }).text()).toBe('c')
  })

  test('are cancelled by an interrupt, each with an end of its own', async () => {
    const { client } = server
    const running = await startEndlessTurn(client, sessionId)
    const waiting = client.sessions.send(sessionId, say('never'), { queue: true })
    const { turnId } = await client.sessions.sendAsync(sessionId, say('never'), { queue: true })
    const reply = await client.sessions.interrupt(sessionId)
    expect(reply.turnId).toBe(running.id ?? reply.turnId)
    expect(reply.cancelled).toHaveLength(2)
    expect(reply.cancelled).toContain(turnId)
    expect(await running.result()).toMatchObject({ stopReason: 'interrupted' })
    await expect(waiting.text()).rejects.toMatchObject({ code: 'cancelled' })
    const found = await eventually(ends, (all) => all.length === 3)
    expect(found.map(({ type }) => type)).toEqual(['done', 'error', 'error'])
    expect(await client.sessions.send(sessionId, say('goes on'), { queue: true }).text()).toBe('goes on')
  })

  test('survive a killed server: what had not begun begins, once, in order', async () => {
    const { client } = server
    await startEndlessTurn(client, sessionId)
    for (const text of ['one', 'two']) {
      await client.sessions.sendAsync(sessionId, say(text), { queue: true, idempotencyKey: text })
    }
    await server.kill()
    await server.start()
    const found = await eventually(ends, (all) => all.length === 3, 30_000)
    expect(found).toMatchObject([{ type: 'error', code: 'interrupted' }, { type: 'done' }, { type: 'done' }])
    const again = await collect(
      server.client.sessions.send(sessionId, say('two'), { queue: true, idempotencyKey: 'two' }),
    )
    expect(again.at(-1)).toMatchObject({ type: 'done', turnId: found[2]?.turnId })
    expect(await ends()).toHaveLength(3)
  })

  test('stay cancelled when the server is killed right after', async () => {
    const { client } = server
    await startEndlessTurn(client, sessionId)
    await client.sessions.sendAsync(sessionId, say('never'), { queue: true })
    await client.sessions.interrupt(sessionId)
    await server.kill()
    await server.start()
    const found = await eventually(ends, (all) => all.length === 2, 30_000)
    expect(found[1]).toMatchObject({ type: 'error', code: 'cancelled' })
  })

  test('are left for the next start when the server stops, and end when the session ends', async () => {
    await startEndlessTurn(server.client, sessionId)
    await server.client.sessions.sendAsync(sessionId, scripted(bash('sleep 60')), { queue: true })
    await server.client.sessions.sendAsync(sessionId, say('never'), { queue: true })
    await server.stop()
    await server.start()
    // The first of those that waited runs now; the end of the session ends both.
    await eventually(turnsInLog, (turns) => turns.filter(({ type }) => type === 'turn').length === 2, 30_000)
    await server.client.sessions.end(sessionId)
    const found = await eventually(ends, (all) => all.length === 3)
    expect(found.map(({ type }) => type)).toEqual(['error', 'error', 'error'])
    expect(found[2]).toMatchObject({ code: 'session_ended' })
  })

  test('are refused when too many wait, and pausing is refused while any does', async () => {
    const { client } = server
    const running = await startEndlessTurn(client, sessionId)
    const sends = Array.from({ length: 32 }, () =>
      client.sessions.sendAsync(sessionId, say('x'), { queue: true }),
    )
    await Promise.all(sends)
    const raw = post(messagesPath(), { content: 'x', queue: true })
    await expectRefused(server, raw, { status: 429, code: 'queue_full' })
    await expect(client.sessions.pause(sessionId)).rejects.toMatchObject({ code: 'turn_in_progress' })
    expect((await client.sessions.interrupt(sessionId)).cancelled).toHaveLength(32)
    await running.result()
    await eventually(ends, (all) => all.length === 33)
  })
})

/** Not `sleep`: the agent's shell refuses that at once, and the turn would end by itself. */
const ENDLESS = bash('timeout 60 tail -f /dev/null')

test('an interrupt that comes before the agent has the message still stops it', async () => {
  const { client } = server
  for (let tries = 0; tries < 10; tries++) {
    // Its end can be read a moment before the session is free again.
    const accepted = () =>
      client.sessions
        .sendAsync(sessionId, scripted(ENDLESS, { text: 'never' }))
        .catch((error: { code?: string }) => {
          if (error.code !== 'turn_in_progress') throw error
        })
    await eventually(accepted, (turn) => turn !== undefined)
    await client.sessions.interrupt(sessionId)
    const found = await eventually(ends, (all) => all.length === tries + 1)
    expect(found.at(-1)).toMatchObject({ type: 'done', stopReason: 'interrupted' })
  }
})

test('an interrupt without a turn is refused', async () => {
  const raw = post(`/api/sessions/${sessionId}/interrupt`, undefined)
  await expectRefused(server, raw, { status: 409, code: 'no_turn' })
})
