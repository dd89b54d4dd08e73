import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterEach, expect, test } from 'vitest'
import { type MessagesApi, type MessagesApiOptions, startMessagesApi } from './messages-api.ts'
import { ask, messagesBody, post, readEvents } from './testing/messages-client.ts'

const running: MessagesApi[] = []

afterEach(async () => {
  await Promise.all(running.splice(0).map((api) => api.close()))
})

async function start(options: MessagesApiOptions = {}): Promise<MessagesApi> {
  const api = await startMessagesApi(options)
  running.push(api)
  return api
}

test('a request without stream gets one JSON message', async () => {
  const api = await start({
    script: [{ thinking: 'hm', text: 'hello', tool: 'Bash', input: { command: 'ls' } }],
  })
  const response = await post(api.url, messagesBody('hi'))
  expect(response.headers.get('request-id')).toMatch(/^req_/)
  expect(await response.json()).toMatchObject({
    type: 'message',
    role: 'assistant',
    model: 'claude-test',
    content: [
      { type: 'thinking', thinking: 'hm', signature: expect.any(String) },
      { type: 'text', text: 'hello' },
      { type: 'tool_use', id: expect.stringMatching(/^toolu_/), name: 'Bash', input: { command: 'ls' } },
    ],
    stop_reason: 'tool_use',
    stop_sequence: null,
    usage: { input_tokens: expect.any(Number), output_tokens: expect.any(Number) },
  })
})

test('a stream has the events of the real API in its order', async () => {
  const step = { thinking: 'hm', text: 'héllo 👋 you', tool: 'Bash', input: { command: 'ls' }, chunkSize: 7 }
  const api = await start({ script: [step] })
  const response = await post(api.url, messagesBody('hi', { stream: true }))
  expect(response.headers.get('content-type')).toContain('text/event-stream')
  const events = await readEvents(response)
  const block = (index: number, deltas: string[]) => [
    `content_block_start ${index}`,
    ...deltas.map((type) => `content_block_delta ${index} ${type}`),
    `content_block_stop ${index}`,
  ]
  expect(events.map(summary)).toEqual([
    'message_start',
    'ping',
    ...block(0, ['thinking_delta', 'signature_delta']),
    ...block(1, ['text_delta', 'text_delta']),
    ...block(2, Array<string>(4).fill('input_json_delta')),
    'message_delta',
    'message_stop',
  ])
  expect(joined(events, 'text')).toBe('héllo 👋 you')
  expect(JSON.parse(joined(events, 'partial_json'))).toEqual({ command: 'ls' })
  expect(events[0]).toMatchObject({ message: { content: [], stop_reason: null } })
  expect(events.at(-2)).toMatchObject({
    delta: { stop_reason: 'tool_use' },
    usage: { output_tokens: expect.any(Number) },
  })
})

test('stop reason, usage and raw content can be set', async () => {
  const content = [{ type: 'redacted_thinking', data: '{{prompt}}' }]
  const api = await start({ script: [{ content, stopReason: 'max_tokens', usage: { output_tokens: 7 } }] })
  const reply = await (await post(api.url, messagesBody('hi'))).json()
  expect(reply).toMatchObject({ content, stop_reason: 'max_tokens', usage: { output_tokens: 7 } })
})

test('the pauses of a step are kept', async () => {
  const step = { text: 'abc', chunkSize: 1, delayMs: 40, firstTokenMs: 40, chunkDelayMs: 40 }
  const api = await start({ script: [step] })
  const started = Date.now()
  const response = await post(api.url, messagesBody('hi', { stream: true }))
  expect(Date.now() - started).toBeGreaterThanOrEqual(39)
  await response.text()
  expect(Date.now() - started).toBeGreaterThanOrEqual(4 * 40 - 4)
})

test('the other endpoints answer', async () => {
  const api = await start()
  const counted = await fetch(`${api.url}/v1/messages/count_tokens`, {
    method: 'POST',
    body: JSON.stringify(messagesBody('hi')),
  })
  expect(await counted.json()).toEqual({ input_tokens: expect.any(Number) })
  expect(await (await fetch(`${api.url}/v1/models`)).json()).toMatchObject({ data: [{ type: 'model' }] })
  expect((await fetch(`${api.url}/api/hello`, { method: 'HEAD' })).status).toBe(200)
  expect((await fetch(`${api.url}/api/hello`)).status).toBe(200)
  const missing = await fetch(`${api.url}/v1/else`)
  expect(missing.status).toBe(404)
  expect(await missing.json()).toMatchObject({ type: 'error', error: { type: 'not_found_error' } })
})

test.each([
  ['no JSON', '{'],
  ['no object', '[]'],
  ['no model', { messages: [{ role: 'user', content: 'x' }] }],
  ['no messages', { model: 'm', messages: [] }],
  ['content that is a number', { model: 'm', messages: [{ role: 'user', content: 1 }] }],
  ['a text block without text', { model: 'm', messages: [{ role: 'user', content: [{ type: 'text' }] }] }],
  ['tools without names', messagesBody('x', { tools: [{}] })],
])('a body with %s is refused with 400', async (_name, body) => {
  const api = await start()
  const response = await post(api.url, body)
  expect(response.status).toBe(400)
  expect(await response.json()).toMatchObject({ error: { type: 'invalid_request_error' } })
  expect(api.requests).toHaveLength(0)
})

test('a body over the limit is refused with 413', async () => {
  const api = await start({ maxBodyBytes: 1000 })
  expect((await post(api.url, messagesBody('x'.repeat(2_000_000)))).status).toBe(413)
  expect(await ask(api.url, 'short')).toBe('echo: short')
})

test('with an API key every other key gets 401', async () => {
  const api = await start({ apiKey: 'sk-real' })
  const status = async (headers: Record<string, string>) =>
    (await post(api.url, messagesBody('hi'), { headers })).status
  expect(await status({})).toBe(401)
  expect(await status({ 'x-api-key': 'sk-dummy' })).toBe(401)
  expect(await status({ 'x-api-key': 'sk-real' })).toBe(200)
  expect(await status({ authorization: 'Bearer sk-real' })).toBe(200)
  expect((await fetch(`${api.url}/v1/models`)).status).toBe(401)
  expect(api.requests.map((r) => r.status)).toEqual([401, 401, 200, 200])
})

test('a request is recorded with what was made of it', async () => {
  const api = await start({ script: [{ text: 'one' }, { error: 529 }] })
  await post(api.url, messagesBody('hi'), { headers: { 'x-claude-code-session-id': 'session-1' } })
  await post(api.url, messagesBody('there'))
  const [first, second] = await Promise.all(
    ['hi', 'there'].map((prompt) => api.waitFor((r) => r.prompt === prompt && r.outcome !== undefined)),
  )
  expect(first).toMatchObject({ sessionId: 'session-1', turn: 0, step: 0, outcome: 'answered', status: 200 })
  expect(first?.body.model).toBe('claude-test')
  expect(second).toMatchObject({ reply: { error: 529 }, outcome: 'error', status: 529 })
})

test('only the latest requests are remembered', async () => {
  const api = await start({ keepRequests: 2 })
  for (const prompt of ['a', 'b', 'c']) await ask(api.url, prompt)
  expect(api.requests.map((r) => r.prompt)).toEqual(['b', 'c'])
})

test('waitFor sees requests that have arrived and that will, and gives up in time', async () => {
  const api = await start()
  const coming = api.waitFor((r) => r.prompt === 'a')
  await ask(api.url, 'a')
  expect((await coming).prompt).toBe('a')
  expect((await api.waitFor((r) => r.prompt === 'a')).prompt).toBe('a')
  await expect(api.waitFor(() => false, 20)).rejects.toThrow('within 20 ms')
})

test('waitFor sees a request whose script function is still deciding', async () => {
  const gate = Promise.withResolvers<void>()
  const api = await start({ script: () => gate.promise.then(() => ({ text: 'late' })) })
  const answer = ask(api.url, 'hi')
  expect((await api.waitFor((r) => r.prompt === 'hi')).outcome).toBeUndefined()
  gate.resolve()
  expect(await answer).toBe('late')
})

test('reset forgets requests and starts the first script again', async () => {
  const api = await start({ script: [{ text: 'first' }] })
  expect(await ask(api.url, 'a')).toBe('first')
  api.setScript([{ text: 'second' }])
  expect(await ask(api.url, 'a')).toBe('second')
  api.reset()
  expect(api.requests).toHaveLength(0)
  expect(await ask(api.url, 'a')).toBe('first')
})

test('it listens on a Unix socket, in place of one left behind but never of a file', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'offline-model-'))
  const socketPath = join(folder, 'api.sock')
  try {
    await writeFile(socketPath, 'mine')
    await expect(start({ socketPath })).rejects.toThrow('EADDRINUSE')
    await rm(socketPath)
    await start({ socketPath })
    const api = await start({ socketPath })
    expect(api).toMatchObject({ url: 'http://localhost', socketPath })
    expect((await stat(socketPath)).mode & 0o777).toBe(0o666)
    expect(await postToSocket(socketPath, messagesBody('hi'))).toContain('echo: hi')
  } finally {
    await rm(folder, { recursive: true })
  }
})

test('close ends a hanging client, a waiting test, and is safe to repeat', async () => {
  const api = await startMessagesApi({ script: { otherwise: { hang: 'headers' } } })
  const hanging = post(api.url, messagesBody('hi')).then(
    () => 'answered',
    () => 'cut off',
  )
  await api.waitFor((r) => r.prompt === 'hi')
  const waiting = expect(api.waitFor(() => false)).rejects.toThrow('closed')
  await api.close()
  expect(await hanging).toBe('cut off')
  await waiting
  await api.close()
})

function summary({ type, index, delta }: Record<string, unknown>): string {
  const deltaType = (delta as { type?: string } | undefined)?.type
  return [type, index, deltaType].filter((part) => part !== undefined).join(' ')
}

function joined(events: Record<string, unknown>[], field: string): string {
  return events.map(({ delta }) => (delta as Record<string, string> | undefined)?.[field] ?? '').join('')
}

function postToSocket(socketPath: string, body: unknown): Promise<string> {
  return new Promise((resolve, reject) => {
    const call = request({ socketPath, method: 'POST', path: '/v1/messages', agent: false }, (response) => {
      text(response).then(resolve, reject)
    })
    call.once('error', reject)
    call.end(JSON.stringify(body))
  })
}
