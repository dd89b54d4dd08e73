import { once } from 'node:events'
import http, { type IncomingMessage, type ServerResponse } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, onTestFinished, test } from 'vitest'
import { tempDir } from '../testing/temp-dir.ts'
import { type ModelProxy, type ModelProxyOptions, startModelProxy } from './model-proxy.ts'

const TOKEN = 'ash-session-token'
const KEY = 'sk-the-real-key'
const IDLE_MS = 200

interface Upstream {
  url: string
  seen: { request: IncomingMessage; body: Promise<string> }[]
}

/** A real server in place of the model API. */
async function startUpstream(
  reply: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<Upstream> {
  const seen: Upstream['seen'] = []
  const server = http.createServer((request, response) => {
    const body = text(request)
    body.catch(() => {})
    seen.push({ request, body })
    reply(request, response)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen }
}

const answerOk = (_: IncomingMessage, response: ServerResponse) => {
  response.writeHead(200, { 'content-type': 'application/json', 'request-id': 'req_1', 'set-cookie': 'a=b' })
  response.end('{"ok":true}')
}

interface Proxy extends ModelProxy {
  socketPath: string
}

async function startProxy(baseUrl: string, more: Partial<ModelProxyOptions> = {}): Promise<Proxy> {
  const socketPath = join(await tempDir(), 'model.sock')
  const proxy = await startModelProxy({
    socketPath,
    token: TOKEN,
    upstream: { baseUrl, apiKey: KEY },
    idleTimeoutMs: IDLE_MS,
    ...more,
  })
  onTestFinished(() => proxy.close())
  return { ...proxy, socketPath }
}

interface Ask {
  method?: string
  path?: string
  headers?: http.OutgoingHttpHeaders
}

/** Begins a request; the connection is its own, as each test may break it. */
function begin({ socketPath }: Proxy, { method = 'POST', path = '/v1/messages', headers }: Ask = {}) {
  const request = http.request({
    socketPath,
    method,
    path,
    agent: false,
    headers: { 'x-api-key': TOKEN, 'content-type': 'application/json', ...headers },
  })
  const response = once(request, 'response').then(([incoming]) => incoming as IncomingMessage)
  response.catch(() => {})
  request.on('error', () => {})
  onTestFinished(() => {
    request.destroy()
  })
  return { request, response }
}

async function ask(proxy: Proxy, options: Ask = {}, body = '{"model":"claude-test"}') {
  const { request, response } = begin(proxy, options)
  request.end(body)
  const incoming = await response
  return { status: incoming.statusCode, headers: incoming.headers, body: await text(incoming) }
}

/** Sends bytes as they are and reads to the end of the connection. */
async function sendRaw({ socketPath }: Proxy, bytes: string): Promise<string> {
  const socket = connect(socketPath)
  socket.on('error', () => {})
  socket.write(bytes)
  return text(socket).catch(() => '')
}

const errorOf = (body: string) => (JSON.parse(body) as { type: string; error: { type: string } }).error

test('a request with the token reaches the model API with the real key, and the answer comes back', async () => {
  const upstream = await startUpstream(answerOk)
  const reply = await ask(await startProxy(upstream.url), { path: '/v1/messages?beta=true' })
  expect(reply).toMatchObject({ status: 200, body: '{"ok":true}' })
  expect(reply.headers['request-id']).toBe('req_1')
  const [{ request, body } = { request: undefined, body: undefined }] = upstream.seen
  expect(request).toMatchObject({ method: 'POST', url: '/v1/messages?beta=true' })
  expect(request?.headers['x-api-key']).toBe(KEY)
  expect(await body).toBe('{"model":"claude-test"}')
})

test('the token may come as a bearer token too', async () => {
  const upstream = await startUpstream(answerOk)
  const proxy = await startProxy(upstream.url)
  const headers = { 'x-api-key': [], authorization: `Bearer ${TOKEN}` }
  expect((await ask(proxy, { headers })).status).toBe(200)
})

test.each([
  ['a wrong token', { 'x-api-key': 'wrong' }],
  ['a token of the right length', { 'x-api-key': 'x'.repeat(TOKEN.length) }],
  ['no token', { 'x-api-key': [] }],
  ['an empty token', { 'x-api-key': '' }],
  ['the token twice', { 'x-api-key': [TOKEN, TOKEN] }],
  ['the real key', { 'x-api-key': KEY }],
])('%s is refused with 401 and reaches nobody', async (_, headers) => {
  const upstream = await startUpstream(answerOk)
  const reply = await ask(await startProxy(upstream.url), { headers })
  expect(reply.status).toBe(401)
  expect(errorOf(reply.body).type).toBe('authentication_error')
  expect(upstream.seen).toEqual([])
})

test.each([
  ['GET', '/v1/messages'],
  ['POST', '/v1/files'],
  ['POST', '/v1/messages/batches'],
  ['POST', '/v1/messages/../files'],
  ['POST', '/v1/messages/'],
  ['POST', '//'],
  ['POST', '//evil.example/v1/messages'],
  ['POST', '/v1%2fmessages'],
  ['POST', 'http://evil.example/v1/messages'],
  ['DELETE', '/v1/models'],
  ['OPTIONS', '*'],
])('%s %s is not the model API and is refused with 403', async (method, path) => {
  const upstream = await startUpstream(answerOk)
  const proxy = await startProxy(upstream.url)
  const reply = await ask(proxy, { method, path })
  expect(reply.status).toBe(403)
  expect(errorOf(reply.body).type).toBe('permission_error')
  expect(upstream.seen).toEqual([])
  expect((await ask(proxy)).status).toBe(200)
})

test.each([
  ['no HTTP at all', 'hello\r\n\r\n'],
  ['a tunnel', `CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example\r\nx-api-key: ${TOKEN}\r\n\r\n`],
  ['half a request', 'POST /v1/mess'],
  ['conflicting lengths', 'POST /v1/messages HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n'],
  [
    'a length next to chunks',
    'POST /v1/messages HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
  ],
])('%s goes nowhere and the proxy lives on', async (_, bytes) => {
  const upstream = await startUpstream(answerOk)
  const proxy = await startProxy(upstream.url)
  const socket = connect(proxy.socketPath)
  socket.on('error', () => {})
  socket.end(bytes)
  await once(socket.resume(), 'close')
  expect(upstream.seen).toEqual([])
  expect((await ask(proxy)).status).toBe(200)
})

test('a path with an odd query goes to the model API and nowhere else', async () => {
  const upstream = await startUpstream(answerOk)
  const proxy = await startProxy(upstream.url)
  const raw = `POST /v1/messages?x=@evil.example/..//#%zz HTTP/1.1\r\nhost: h\r\nx-api-key: ${TOKEN}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`
  expect(await sendRaw(proxy, raw)).toContain('200 OK')
  expect(upstream.seen[0]?.request.url?.startsWith('/v1/messages?')).toBe(true)
})

test('a base URL with a path keeps it', async () => {
  const upstream = await startUpstream(answerOk)
  const proxy = await startProxy(`${upstream.url}/anthropic/`)
  await ask(proxy, { path: '/v1/messages?beta=true' })
  expect(upstream.seen[0]?.request.url).toBe('/anthropic/v1/messages?beta=true')
})

test('no header of the agent is forwarded but those the model API needs', async () => {
  const upstream = await startUpstream(answerOk)
  await ask(await startProxy(upstream.url), {
    headers: {
      authorization: `Bearer ${TOKEN}`,
      cookie: `token=${TOKEN}`,
      'proxy-authorization': 'Basic abc',
      'x-forwarded-for': '10.0.0.1',
      'x-goog-api-key': 'other',
      host: 'evil.example',
      'anthropic-version': '2023-06-01',
      'anthropic-beta': 'one',
      'anthropic-dangerous-direct-browser-access': 'true',
      'x-claude-code-session-id': 'session-1',
    },
  })
  const headers = upstream.seen[0]?.request.headers ?? {}
  expect(Object.keys(headers).sort()).toEqual(
    [
      'anthropic-beta',
      'anthropic-version',
      'connection',
      'content-length',
      'content-type',
      'host',
      'x-api-key',
      'x-claude-code-session-id',
    ].filter((name) => name !== 'content-length' || 'content-length' in headers),
  )
  expect(headers['x-api-key']).toBe(KEY)
  expect(headers.host).toBe(new URL(upstream.url).host)
  expect(JSON.stringify(headers)).not.toContain(TOKEN)
})

test('the server’s own token and headers go in, and no key where it has none', async () => {
  const upstream = await startUpstream(answerOk)
  await ask(
    await startProxy(upstream.url, {
      upstream: { baseUrl: upstream.url, authToken: 'server-token', headers: { 'x-gateway': 'blue' } },
    }),
  )
  const headers = upstream.seen[0]?.request.headers
  expect(headers).toMatchObject({ authorization: 'Bearer server-token', 'x-gateway': 'blue' })
  expect(headers).not.toHaveProperty('x-api-key')
})

test('no cookie of the model API reaches the agent', async () => {
  const upstream = await startUpstream(answerOk)
  expect((await ask(await startProxy(upstream.url))).headers).not.toHaveProperty('set-cookie')
})

test('an error of the model API passes through with its status and advice', async () => {
  const upstream = await startUpstream((_, response) => {
    response.writeHead(529, { 'retry-after': '7', 'x-should-retry': 'true' }).end('{"type":"error"}')
  })
  const reply = await ask(await startProxy(upstream.url))
  expect(reply).toMatchObject({ status: 529, body: '{"type":"error"}' })
  expect(reply.headers).toMatchObject({ 'retry-after': '7', 'x-should-retry': 'true' })
})

test('a stream passes through chunk by chunk, each before the next is sent', async () => {
  const sent: ServerResponse[] = []
  const upstream = await startUpstream((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
    sent.push(response)
  })
  const { request, response } = begin(await startProxy(upstream.url))
  request.end('{}')
  const incoming = await response // The headers alone: nothing of the body exists yet.
  for (const chunk of ['event: one\n\n', 'event: two\n\n', 'event: three\n\n']) {
    sent[0]?.write(chunk)
    const [received] = (await once(incoming, 'data')) as [Buffer]
    expect(received.toString()).toBe(chunk)
  }
  sent[0]?.end()
  await once(incoming, 'end')
})

test('a model API that sends no headers is given up with 504 in its own error shape', async () => {
  const upstream = await startUpstream(() => {})
  const reply = await ask(await startProxy(upstream.url))
  expect(reply.status).toBe(504)
  expect(JSON.parse(reply.body)).toMatchObject({ type: 'error', error: { type: 'timeout_error' } })
})

test('a model API that falls silent in the middle breaks the connection', async () => {
  const upstream = await startUpstream((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' }).write('event: one\n\n')
  })
  const { request, response } = begin(await startProxy(upstream.url))
  request.end('{}')
  await expect(text(await response)).rejects.toThrow(/aborted/)
})

test('a stream that keeps talking outlives the idle time', async () => {
  const upstream = await startUpstream((_, response) => {
    response.writeHead(200)
    let left = 6
    const timer = setInterval(() => {
      response.write('.')
      if (--left > 0) return
      clearInterval(timer)
      response.end()
    }, IDLE_MS / 3)
  })
  expect((await ask(await startProxy(upstream.url))).body).toBe('......')
})

test('a model API that breaks off in the middle breaks the connection', async () => {
  const upstream = await startUpstream((_, response) => {
    response.writeHead(200, { 'content-length': '100' }).write('half')
    setImmediate(() => response.destroy())
  })
  const { request, response } = begin(await startProxy(upstream.url))
  request.end('{}')
  await expect(text(await response)).rejects.toThrow(/aborted/)
})

test('a model API that refuses the connection is 502 in its own error shape', async () => {
  const closed = http.createServer().listen(0, '127.0.0.1')
  await once(closed, 'listening')
  const { port } = closed.address() as AddressInfo
  await new Promise((resolve) => closed.close(resolve))
  const reply = await ask(await startProxy(`http://127.0.0.1:${port}`))
  expect(reply.status).toBe(502)
  expect(JSON.parse(reply.body)).toMatchObject({ type: 'error', error: { type: 'api_error' } })
})

test('an agent that goes away ends its request at the model API', async () => {
  const arrived = Promise.withResolvers<IncomingMessage>()
  const upstream = await startUpstream((request, response) => {
    response.writeHead(200).write('event: one\n\n')
    arrived.resolve(request)
  })
  const { request, response } = begin(await startProxy(upstream.url, { idleTimeoutMs: 60_000 }))
  request.end('{}')
  const upstreamRequest = await arrived.promise
  await response
  const gone = once(upstreamRequest.socket, 'close')
  request.destroy()
  await gone
})

test.each([
  ['by its length', { 'content-length': String(65 * 1024 * 1024) }],
  ['by its chunks', { 'transfer-encoding': 'chunked' }],
])('a body that is too large %s is refused with 413, and the sender gets to read it', async (_, headers) => {
  const upstream = await startUpstream((request) => {
    request.resume()
  })
  const { request, response } = begin(await startProxy(upstream.url, { idleTimeoutMs: 60_000 }), { headers })
  request.end(Buffer.alloc(65 * 1024 * 1024, 'x'))
  const incoming = await response
  expect(incoming.statusCode).toBe(413)
  expect(errorOf(await text(incoming)).type).toBe('request_too_large')
})

test('closing ends what is under way, upstream too, and removes the socket', async () => {
  const arrived = Promise.withResolvers<IncomingMessage>()
  const upstream = await startUpstream((request) => arrived.resolve(request))
  const proxy = await startProxy(upstream.url, { idleTimeoutMs: 60_000 })
  const { request } = begin(proxy)
  request.end('{}')
  const idle = connect(proxy.socketPath)
  idle.on('error', () => {})
  await once(idle, 'connect')
  const upstreamGone = once((await arrived.promise).socket, 'close')
  const clientGone = new Promise((resolve) => request.once('close', resolve))
  await proxy.close()
  await Promise.all([upstreamGone, clientGone])
  const [error] = (await once(connect(proxy.socketPath), 'error')) as [NodeJS.ErrnoException]
  expect(error.code).toBe('ENOENT')
})
