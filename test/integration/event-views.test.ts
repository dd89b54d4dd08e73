import { get } from 'node:http'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { deployTestAgent, endOf, scripted } from './support/conversation.ts'
import { expectRefused, invalid, request } from './support/refusals.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let sessionId: string
beforeAll(async () => {
  server = await startTestServer({ env: { ASH_SESSION_LOG_MB: '1', ASH_DEBUG_TIMING: '1' } })
  await deployTestAgent(server.client)
  sessionId = (await server.client.sessions.create({ agent: 'zebra' })).id
  await server.client.sessions.send(sessionId, scripted({ text: 'one' })).text()
  await server.client.sessions.send(sessionId, scripted({ text: 'two' })).text()
})
afterAll(() => server.close())

test('pages of the log, put together, are the log; filters only leave out', async () => {
  // The last turn's checkpoint follows its end.
  const { events } = await eventually(
    () => server.client.sessions.events(sessionId),
    (page) => page.events.at(-1)?.type === 'checkpoint',
  )
  expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1))
  const paged: number[] = []
  let cursor: string | undefined
  do {
    const page = await server.client.sessions.events(sessionId, { limit: 3, cursor })
    expect(page.events.length).toBeLessThanOrEqual(3)
    paged.push(...page.events.map(({ seq }) => seq))
    cursor = page.nextCursor
  } while (cursor !== undefined)
  expect(paged).toEqual(events.map(({ seq }) => seq))

  const turns = events.filter(({ type }) => type === 'turn')
  const second = turns[1]?.turnId
  const ofSecond = await server.client.sessions.events(sessionId, { turnId: second })
  expect(ofSecond.events).toEqual(events.filter(({ turnId }) => turnId === second))
  const some = await server.client.sessions.events(sessionId, { types: ['turn', 'done'], limit: 4 })
  expect(some).toEqual({ events: events.filter(({ type }) => type === 'turn' || type === 'done') })
})

test.each([
  ['types=nonsense', 'types.0'],
  ['types=', 'types.0'],
  ['turnId=1', 'turnId'],
  ['limit=0', 'limit'],
  ['limit=1001', 'limit'],
  ['after=-1', 'after'],
])('a page with %s is refused', async (query, field) => {
  await expectRefused(server, { path: `/api/sessions/${sessionId}/events?${query}` }, invalid(field))
})

test('a stream tells browsers how soon to come back, and forbids what would hold it up', async () => {
  const headers = { authorization: `Bearer ${server.apiKey}` }
  const { promise, resolve, reject } = Promise.withResolvers<[Record<string, unknown>, string]>()
  const connection = get(
    `${server.url}/api/sessions/${sessionId}/stream?after=1000000`,
    { headers },
    (reply) => {
      reply.once('data', (chunk) => resolve([reply.headers, String(chunk)]))
    },
  ).on('error', reject)
  const [received, first] = await promise
  connection.destroy()
  expect(first).toBe('retry: 1000\n\n')
  expect(received).toMatchObject({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache, no-transform',
    'x-accel-buffering': 'no',
  })
  expect(received).not.toHaveProperty('content-encoding')
})

test('the hops of a turn are in the metrics, and in the log where that is asked for', async () => {
  const { text } = await request(server, { path: '/metrics' })
  for (const hop of ['lookup', 'accepted', 'command', 'first_message', 'first_byte', 'done']) {
    expect(text).toMatch(new RegExp(`ash_turn_hop_seconds_count\\{hop="${hop}"\\} [2-9]`))
    expect(server.log()).toMatch(new RegExp(`"hop":"${hop}","ms":[\\d.]+,"msg":"turn timing"`))
  }
})

test('a log that has reached its limit takes no more messages, and can be read to its end', async () => {
  const { client } = server
  const session = await client.sessions.create({ agent: 'zebra' })
  await client.sessions.send(session.id, scripted({ text: 'x'.repeat(200_000) })).text()
  // Prompt and answer still find room; the result, which repeats the answer, does not.
  const flood = client.sessions.send(session.id, scripted({ text: 'x'.repeat(300_000) }))
  expect(await endOf(flood)).toMatchObject({ type: 'error', code: 'log_full' })
  const { error } = await eventually(
    () => client.sessions.get(session.id),
    ({ status }) => status === 'error',
  )
  expect(error).toMatchObject({ code: 'log_full' })
  const { events } = await client.sessions.events(session.id, { types: ['error'] })
  expect(events).toHaveLength(1)
  await expect(client.sessions.send(session.id, 'more').text()).rejects.toMatchObject({ code: 'log_full' })
})
