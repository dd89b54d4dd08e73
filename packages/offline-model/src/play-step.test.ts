import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { type MessagesApi, startMessagesApi } from './messages-api.ts'
import type { Step } from './script.ts'
import { messagesBody, parseEvents, post, readUntilEnd } from './testing/messages-client.ts'

let api: MessagesApi

beforeAll(async () => {
  api = await startMessagesApi()
})
afterEach(() => api.reset())
afterAll(() => api.close())

const LONG = 'a text that takes more than one delta to send'

async function play(step: Step, stream: boolean, init: RequestInit = {}): Promise<Response> {
  api.setScript([step])
  return post(api.url, messagesBody('hi', { stream }), init)
}

const outcome = async () => (await api.waitFor((r) => r.outcome !== undefined)).outcome

test.each([true, false])('an error has its status, type and headers (stream: %s)', async (stream) => {
  const error = { status: 429, message: 'slow down', headers: { 'retry-after': '7' } }
  const response = await play({ error }, stream)
  expect(response.status).toBe(429)
  expect(response.headers.get('retry-after')).toBe('7')
  expect(await response.json()).toMatchObject({
    type: 'error',
    error: { type: 'rate_limit_error', message: 'slow down' },
  })
})

test.each([
  [500, 'api_error'],
  [529, 'overloaded_error'],
  [401, 'authentication_error'],
])('status %i alone is enough, and means %s', async (error, type) => {
  const response = await play({ error }, true)
  expect(response.status).toBe(error)
  expect(await response.json()).toMatchObject({ error: { type } })
})

test('disconnect before drops the connection without an answer', async () => {
  await expect(play({ disconnect: 'before' }, true)).rejects.toThrow('fetch failed')
  expect(await outcome()).toBe('disconnected')
})

test('disconnect mid delivers what came before it', async () => {
  const response = await play({ text: LONG, disconnect: 'mid', afterDeltas: 2 }, true)
  const { text, isComplete } = await readUntilEnd(response)
  expect(isComplete).toBe(false)
  expect(parseEvents(text).filter((event) => event.type === 'content_block_delta')).toHaveLength(2)
  expect(await outcome()).toBe('disconnected')
})

test('a fault in the middle strikes a reply of a single delta too', async () => {
  for (const afterDeltas of [1, 5]) {
    const { text, isComplete } = await readUntilEnd(
      await play({ text: 'x', disconnect: 'mid', afterDeltas }, true),
    )
    expect(isComplete).toBe(false)
    expect(text).not.toContain('message_delta')
  }
})

test('disconnect mid cuts a JSON reply', async () => {
  const { text, isComplete } = await readUntilEnd(await play({ text: LONG, disconnect: 'mid' }, false))
  expect(isComplete).toBe(false)
  expect(text).toMatch(/^\{"id"/)
})

test('hang headers says nothing until the client leaves', async () => {
  const signal = AbortSignal.timeout(50)
  await expect(play({ hang: 'headers' }, true, { signal })).rejects.toThrow('aborted due to timeout')
  expect(await outcome()).toBe('hung')
})

test.each([true, false])('hang mid goes silent in the middle (stream: %s)', async (stream) => {
  const response = await play({ text: LONG, hang: 'mid' }, stream, { signal: AbortSignal.timeout(100) })
  expect(response.status).toBe(200)
  const { text, isComplete } = await readUntilEnd(response)
  expect(isComplete).toBe(false)
  expect(text).not.toBe('')
  expect(await outcome()).toBe('hung')
})

test('a stream error is an event of the stream', async () => {
  const response = await play({ text: LONG, streamError: { message: 'busy' } }, true)
  expect(parseEvents(await response.text()).at(-1)).toEqual({
    type: 'error',
    error: { type: 'overloaded_error', message: 'busy' },
  })
})

test('a stream error without a stream is status 529', async () => {
  expect((await play({ text: LONG, streamError: true }, false)).status).toBe(529)
})

test('malformed html is a web page', async () => {
  const response = await play({ malformed: 'html' }, true)
  expect(response.headers.get('content-type')).toBe('text/html')
  expect(await response.text()).toContain('<!doctype html>')
})

test('malformed event cuts an event short', async () => {
  const response = await play({ text: LONG, malformed: 'event' }, true)
  const text = await response.text()
  expect(() => parseEvents(text)).toThrow(SyntaxError)
  expect(await outcome()).toBe('malformed')
})

test.each([
  ['json', true],
  ['json', false],
  ['event', false],
] as const)('malformed %s is half a JSON message (stream: %s)', async (malformed, stream) => {
  const response = await play({ text: LONG, malformed }, stream)
  expect(response.headers.get('content-type')).toBe('application/json')
  await expect(response.json()).rejects.toThrow(SyntaxError)
})

test('raw input reaches the client as it is', async () => {
  const response = await play({ tool: 'Bash', rawInput: '{"command": ' }, true)
  const deltas = parseEvents(await response.text()).map((event) => event.delta as { partial_json?: string })
  expect(deltas.map((delta) => delta?.partial_json ?? '').join('')).toBe('{"command": ')
})

test('a client that leaves ends a slow reply', async () => {
  const step = { text: LONG, chunkSize: 1, chunkDelayMs: 1000 }
  const response = await play(step, true, { signal: AbortSignal.timeout(100) })
  await readUntilEnd(response)
  expect(await outcome()).toBe('client left')
})

test('a script that throws is status 500 with its message', async () => {
  api.setScript(() => {
    throw new Error('no idea')
  })
  const response = await post(api.url, messagesBody('hi'))
  expect(response.status).toBe(500)
  expect(await response.json()).toMatchObject({ error: { type: 'api_error', message: 'no idea' } })
  expect(await outcome()).toBe('error')
})
