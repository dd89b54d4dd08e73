import { timingSafeEqual } from 'node:crypto'
import http from 'node:http'
import https from 'node:https'
import { listenOnPath } from './listen-on-path.ts'
import type { Exchange, ModelGuard } from './model/model-guard.ts'

/** The model API as the server reaches it. The key stays here: sandboxes have a token instead. */
export interface ModelUpstream {
  baseUrl: string
  apiKey?: string | undefined
  authToken?: string | undefined
  headers?: Record<string, string>
}

export interface ModelProxyOptions {
  socketPath: string
  /** Host user that may connect; by default the server's own. */
  owner?: { uid: number; gid: number } | undefined
  token: string
  upstream: ModelUpstream
  /** A silent upstream is given up after this long: the agent's client would wait for ever. */
  idleTimeoutMs: number
  /** Meters the session, holds its budget and its network policy; without it everything passes unread. */
  guard?: ModelGuard | undefined
}

export interface ModelProxy {
  close(): Promise<void>
}

const MAX_REQUEST_BYTES = 64 * 1024 * 1024
/** The model API, as far as the agent SDK uses it. */
const ALLOWED = new Set(['POST /v1/messages', 'POST /v1/messages/count_tokens', 'GET /v1/models'])
const REQUEST_HEADERS =
  /^(accept|accept-encoding|content-type|user-agent|anthropic-(version|beta)|x-claude-code-.*|x-stainless-.*|x-app)$/
const RESPONSE_HEADERS =
  /^(content-type|content-encoding|content-length|request-id|retry-after|x-should-retry|anthropic-.*|date)$/

const agents = {
  'http:': new http.Agent({ keepAlive: true, maxSockets: 256 }),
  'https:': new https.Agent({ keepAlive: true, maxSockets: 256 }),
}

/** Admits one sandbox to the model API: checks its token, puts the real key in, and passes bytes through. */
export async function startModelProxy(options: ModelProxyOptions): Promise<ModelProxy> {
  const server = http.createServer({ requestTimeout: 0, headersTimeout: 10_000 }, (request, response) => {
    handle(request, response, options)
  })
  server.maxConnections = 64
  const release = await listenOnPath(server, options.socketPath, options.owner)
  return {
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
      await release()
    },
  }
}

function handle(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  options: ModelProxyOptions,
): void {
  const url = request.url ?? '/'
  const call = `${request.method} ${url.split('?', 1)[0]}`
  if (!isToken(request, options.token)) {
    refuse(response, 401, 'authentication_error', 'not the token of this sandbox')
  } else if (!ALLOWED.has(call)) {
    refuse(response, 403, 'permission_error', `${call} is not part of the model API`)
  } else if (Number(request.headers['content-length'] ?? 0) > MAX_REQUEST_BYTES) {
    refuse(response, 413, 'request_too_large', `a request may have ${MAX_REQUEST_BYTES} bytes`)
  } else if (options.guard === undefined || request.method === 'GET') {
    forward(request, response, options, url)
  } else {
    admit(request, response, options, url, options.guard)
  }
}

/** A guarded request is read whole before anything of it leaves; its bytes then go on unchanged. */
function admit(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  options: ModelProxyOptions,
  url: string,
  guard: ModelGuard,
): void {
  const chunks: Buffer[] = []
  let isTooLarge = false
  limitBytes(request, MAX_REQUEST_BYTES, () => {
    if (!isTooLarge) refuse(response, 413, 'request_too_large', 'the request is too large')
    isTooLarge = true
    chunks.length = 0
  })
  request.on('data', (chunk: Buffer) => isTooLarge || chunks.push(chunk))
  request.on('end', () => {
    if (isTooLarge || response.destroyed) return
    const body = Buffer.concat(chunks)
    const admission = guard.admit(
      body,
      /^\/v1\/messages\/count_tokens(\?|$)/.test(url) ? 'count_tokens' : 'messages',
    )
    if (admission.isAdmitted)
      return forward(request, response, options, url, { body, exchange: admission.exchange })
    const { status, type, message, headers } = admission.refusal
    refuse(response, status, type, message, headers)
  })
}

function forward(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  { upstream, idleTimeoutMs }: ModelProxyOptions,
  path: string,
  guarded?: { body: Buffer; exchange: Exchange },
): void {
  const target = new URL(upstream.baseUrl.replace(/\/+$/, '') + path)
  const isSecure = target.protocol === 'https:'
  const outgoing = (isSecure ? https : http).request(target, {
    method: request.method ?? 'GET',
    agent: agents[isSecure ? 'https:' : 'http:'],
    headers: {
      ...pick(request.headers, REQUEST_HEADERS),
      ...upstream.headers,
      ...credentials(upstream),
      ...(guarded
        ? { 'accept-encoding': 'identity', 'content-length': guarded.body.length }
        : lengthOf(request)),
    },
    timeout: idleTimeoutMs,
  })
  const fail = (status: number, type: string, message: string) => {
    outgoing.destroy()
    if (response.writableEnded) return // Refused already; being destroyed, the request fails once more.
    // After the first byte the only honest sign is a broken connection; the client retries those.
    if (response.headersSent) response.destroy()
    else refuse(response, status, type, message)
  }
  outgoing.on('timeout', () => fail(504, 'timeout_error', `the model API was silent for ${idleTimeoutMs} ms`))
  outgoing.on('error', (error: NodeJS.ErrnoException) => {
    if (error.syscall === 'connect' || error.syscall === 'getaddrinfo') guarded?.exchange.onUnsent()
    fail(502, 'api_error', `the model API cannot be reached: ${error.message}`)
  })
  outgoing.on('response', (incoming) => {
    response.writeHead(incoming.statusCode ?? 502, pick(incoming.headers, RESPONSE_HEADERS))
    response.flushHeaders()
    incoming.on('error', () => response.destroy())
    incoming.on('aborted', () => response.destroy())
    guarded?.exchange.onResponse(incoming.statusCode ?? 502, incoming.headers)
    incoming.pipe(response) // Before the meter: a chunk is on its way when the meter sees it.
    if (guarded) incoming.on('data', (chunk: Buffer) => guarded.exchange.onData(chunk))
  })
  response.on('close', () => {
    outgoing.destroy()
    guarded?.exchange.end()
  })
  request.on('error', () => outgoing.destroy())
  if (guarded) {
    outgoing.end(guarded.body)
    return
  }
  limitBytes(request, MAX_REQUEST_BYTES, () => fail(413, 'request_too_large', 'the request is too large'))
  request.pipe(outgoing)
}

function limitBytes(request: http.IncomingMessage, maxBytes: number, exceeded: () => void): void {
  let bytes = 0
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes > maxBytes) exceeded()
  })
}

function isToken(request: http.IncomingMessage, token: string): boolean {
  const given = request.headers['x-api-key'] ?? request.headers.authorization?.replace(/^Bearer /i, '')
  if (typeof given !== 'string') return false
  const [a, b] = [Buffer.from(given), Buffer.from(token)]
  return a.length === b.length && timingSafeEqual(a, b)
}

function credentials(upstream: ModelUpstream): Record<string, string> {
  return {
    ...(upstream.apiKey !== undefined && { 'x-api-key': upstream.apiKey }),
    ...(upstream.authToken !== undefined && { authorization: `Bearer ${upstream.authToken}` }),
  }
}

function lengthOf(request: http.IncomingMessage): Record<string, string> {
  const length = request.headers['content-length']
  return length === undefined ? {} : { 'content-length': length }
}

function pick(headers: http.IncomingHttpHeaders, allowed: RegExp): http.OutgoingHttpHeaders {
  return Object.fromEntries(
    Object.entries(headers).filter(([name, value]) => value !== undefined && allowed.test(name)),
  )
}

/** Errors in the model API's own shape, so that the agent's client understands them. */
function refuse(
  response: http.ServerResponse,
  status: number,
  type: string,
  message: string,
  headers: Record<string, string> = {},
): void {
  const body = JSON.stringify({ type: 'error', error: { type, message: `Ash model proxy: ${message}` } })
  response
    .writeHead(status, { ...headers, 'content-type': 'application/json', connection: 'close' })
    .end(body)
}
