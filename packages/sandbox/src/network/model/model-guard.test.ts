import { once } from 'node:events'
import http, { type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer, text } from 'node:stream/consumers'
import { expect, onTestFinished, test } from 'vitest'
import { Budget } from './budget.ts'
import { createModelGuard, type Exchange, type ModelGuard } from './model-guard.ts'
import { loadPrices } from './price-table.ts'
import type { FetchPolicy } from './remote-fetch.ts'

const NONE: FetchPolicy = { isOpen: () => false, allows: () => false }
const BODY = { model: 'claude-opus-5-5', max_tokens: 10_000, stream: true, messages: [] }

type Handler = (request: IncomingMessage, response: ServerResponse) => unknown

async function listen(handler: Handler): Promise<string> {
  const server = http.createServer((request, response) => {
    handler(request, response)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** The model proxy in twenty lines: what it has to tell the guard, and when. */
function startProxy(guard: ModelGuard, upstream: string): Promise<string> {
  return listen(async (request, response) => {
    const body = await buffer(request)
    const admission = guard.admit(body, request.url === '/v1/messages' ? 'messages' : 'count_tokens')
    if (!admission.isAdmitted) {
      const { status, type, message, headers } = admission.refusal
      return response
        .writeHead(status, headers)
        .end(JSON.stringify({ type: 'error', error: { type, message } }))
    }
    const { exchange } = admission
    const outgoing = http.request(`${upstream}${request.url}`, {
      method: 'POST',
      headers: { 'accept-encoding': 'identity', 'content-length': body.length },
    })
    outgoing.on('response', (incoming) => {
      exchange.onResponse(incoming.statusCode ?? 502, incoming.headers)
      response.writeHead(incoming.statusCode ?? 502, incoming.headers)
      incoming.pipe(response) // First in line for each chunk: the meter looks on afterwards.
      incoming.on('data', (chunk: Buffer) => exchange.onData(chunk))
      incoming.on('error', () => response.destroy())
    })
    outgoing.on('error', (error: NodeJS.ErrnoException) => {
      if (error.syscall === 'connect') exchange.onUnsent()
      if (!response.headersSent) response.writeHead(502)
      response.end()
    })
    response.on('close', () => {
      outgoing.destroy()
      exchange.end()
    })
    outgoing.end(body)
  })
}

async function ask(url: string, body: object = BODY, path = '/v1/messages') {
  const response = await fetch(`${url}${path}`, { method: 'POST', body: JSON.stringify(body) })
  return { status: response.status, headers: response.headers, body: await response.text() }
}

const errorOf = (body: string) => (JSON.parse(body) as { error: { type: string; message: string } }).error

const event = (data: { type: string }) => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`
const start = (usage: object) =>
  event({ type: 'message_start', ...{ message: { model: 'claude-opus-5-5', usage } } })
const finish = (usage: object) =>
  event({ type: 'message_delta', ...{ usage } }) + event({ type: 'message_stop' })

/** A model that always writes its most. */
const writeMost: Handler = async (request, response) => {
  const { max_tokens } = JSON.parse(await text(request)) as typeof BODY
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.write(start({ input_tokens: 500, output_tokens: 1 }))
  response.end(finish({ output_tokens: max_tokens }))
}

function setUp(limits = {}, policy = NONE) {
  const budget = new Budget(loadPrices(), limits)
  return { budget, guard: createModelGuard({ budget, policy }) }
}

function admitted(guard: ModelGuard, body: object = BODY): Exchange {
  const admission = guard.admit(Buffer.from(JSON.stringify(body)), 'messages')
  if (!admission.isAdmitted) throw new Error(admission.refusal.message)
  return admission.exchange
}

test('a session with 1 USD spends it and not a cent more, and is told what to do', async () => {
  const { budget, guard } = setUp({ maxUsd: 1 })
  let reached = 0
  const proxy = await startProxy(
    guard,
    await listen((request, response) => {
      reached++
      writeMost(request, response)
    }),
  )
  const replies = []
  for (let request = 0; request < 8; request++) replies.push(await ask(proxy)) // 0.202 USD each
  expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 200, 402, 402, 402, 402])
  expect(reached).toBe(4)
  expect(budget.totals().session).toMatchObject({ requests: 4, inputTokens: 2000, outputTokens: 40_000 })
  expect(budget.totals().session.usd).toBeCloseTo(0.808)
  const { type, message } = errorOf(replies[7]?.body ?? '')
  expect(type).toBe('billing_error')
  expect(message).toMatch(/budget of \$1\.0000.*\$0\.8080 used.*CLAUDE_CODE_MAX_OUTPUT_TOKENS/)
  budget.setLimits({ maxUsd: 2 })
  expect((await ask(proxy)).status).toBe(200)
})

test('fifty requests at once do not overshoot 1 USD; those without room are told to come back', async () => {
  const { budget, guard } = setUp({ maxUsd: 1 })
  const proxy = await startProxy(guard, await listen(writeMost))
  const replies = await Promise.all(Array.from({ length: 50 }, () => ask(proxy)))
  expect(replies.filter(({ status }) => status === 200)).toHaveLength(4)
  expect(replies.every(({ status }) => [200, 402, 429].includes(status))).toBe(true)
  const waiting = replies.find(({ status }) => status === 429)
  expect(waiting?.headers.get('retry-after')).toBe('2')
  expect(budget.totals().session.usd).toBeLessThanOrEqual(1)
})

test('the response passes through byte by byte as it was sent', async () => {
  const { guard } = setUp()
  const sent = start({ input_tokens: 5 }) + finish({ output_tokens: 5 })
  const proxy = await startProxy(
    guard,
    await listen((_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).end(sent)
    }),
  )
  expect((await ask(proxy)).body).toBe(sent)
})

test('an error of the model API costs nothing', async () => {
  const { budget, guard } = setUp({ maxUsd: 1 })
  const proxy = await startProxy(
    guard,
    await listen((_, response) => {
      response.writeHead(529, { 'content-type': 'application/json' }).end('{"type":"error"}')
    }),
  )
  for (let request = 0; request < 20; request++) expect((await ask(proxy)).status).toBe(529)
  expect(budget.totals().session).toMatchObject({ requests: 0, usd: 0 })
})

test('a model API that cannot be reached costs nothing', async () => {
  const { budget, guard } = setUp({ maxUsd: 1 })
  const proxy = await startProxy(guard, 'http://127.0.0.1:1')
  for (let request = 0; request < 20; request++) expect((await ask(proxy)).status).toBe(502)
  expect(budget.totals().session.requests).toBe(0)
})

test('a stream that breaks off costs its prompt and what it had written', async () => {
  const { budget, guard } = setUp()
  const delta = event({
    type: 'content_block_delta',
    ...{ delta: { type: 'text_delta', text: 'x'.repeat(400) } },
  })
  const proxy = await startProxy(
    guard,
    await listen((_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(start({ input_tokens: 500, output_tokens: 1 }) + delta, () => response.destroy())
    }),
  )
  await ask(proxy).catch(() => {})
  await expect.poll(() => budget.totals().session.requests).toBe(1)
  expect(budget.totals().session).toMatchObject({ inputTokens: 500, outputTokens: 100, estimatedRequests: 1 })
})

test('an agent that hangs up before the answer is charged its prompt', async () => {
  const { budget, guard } = setUp()
  const arrived = Promise.withResolvers<void>()
  const proxy = await startProxy(guard, await listen(() => arrived.resolve()))
  const control = new AbortController()
  const asked = fetch(`${proxy}/v1/messages`, {
    method: 'POST',
    body: JSON.stringify(BODY),
    signal: control.signal,
  })
  await arrived.promise
  control.abort()
  await expect(asked).rejects.toThrow()
  await expect.poll(() => budget.totals().session.requests).toBe(1)
  expect(budget.totals().session.inputTokens).toBeGreaterThan(1000)
  expect(budget.totals().session).toMatchObject({ outputTokens: 0, estimatedRequests: 1 })
})

test('an answer nobody can read costs all it could', () => {
  const { budget, guard } = setUp({ maxUsd: 1 })
  const exchange = admitted(guard)
  exchange.onResponse(200, { 'content-type': 'text/event-stream', 'content-encoding': 'gzip' })
  exchange.onData(Buffer.from([1, 2, 3]))
  exchange.end()
  expect(budget.totals().session).toMatchObject({ outputTokens: 10_000, estimatedRequests: 1 })
})

test('a stream that names no prompt has it estimated', () => {
  const { budget, guard } = setUp()
  const exchange = admitted(guard)
  exchange.onResponse(200, { 'content-type': 'text/event-stream' })
  exchange.onData(Buffer.from(finish({ output_tokens: 9 })))
  expect(exchange.end()).toMatchObject({ outputTokens: 9, isEstimated: true })
  expect(exchange.end()).toBeUndefined()
  expect(budget.totals().session.inputTokens).toBeGreaterThan(1000)
})

test('what the network policy forbids is refused before anything is reserved', () => {
  const { budget, guard } = setUp({ maxUsd: 1000 })
  const tools = [{ type: 'web_search_20250305', name: 'web_search', max_uses: 8 }]
  expect(guard.admit(Buffer.from(JSON.stringify({ ...BODY, tools })), 'messages')).toMatchObject({
    isAdmitted: false,
    refusal: { status: 403, type: 'permission_error', setting: 'network: "open"' },
  })
  const source = { type: 'url', url: 'https://example.com/x.png' }
  const messages = [{ role: 'user', content: [{ type: 'image', source }] }]
  for (const call of ['messages', 'count_tokens'] as const) {
    expect(guard.admit(Buffer.from(JSON.stringify({ ...BODY, messages })), call)).toMatchObject({
      refusal: {
        status: 403,
        setting: 'network: ["example.com"]',
        message: expect.stringContaining('"example.com"'),
      },
    })
  }
  expect(budget.toJSON().session.requests).toBe(0)
})

test('a policy that opens while the session runs is obeyed at once', () => {
  let isOpen = false
  const { guard } = setUp({}, { isOpen: () => isOpen, allows: () => false })
  const body = { ...BODY, tools: [{ type: 'web_search_20250305', name: 'web_search' }] }
  expect(() => admitted(guard, body)).toThrow('open')
  isOpen = true
  admitted(guard, body)
})

test('a malformed body is refused with 400', () => {
  expect(setUp().guard.admit(Buffer.from('{'), 'messages')).toMatchObject({
    refusal: { status: 400, type: 'invalid_request_error' },
  })
})

test('counting tokens is free and needs no budget', async () => {
  const { budget, guard } = setUp({ maxUsd: 0 })
  const proxy = await startProxy(
    guard,
    await listen((_, response) => {
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"input_tokens":5}')
    }),
  )
  const { max_tokens, ...body } = BODY
  expect(await ask(proxy, body, '/v1/messages/count_tokens')).toMatchObject({
    status: 200,
    body: '{"input_tokens":5}',
  })
  expect(budget.totals().session.requests).toBe(0)
})
