import http from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { forwardRequest, forwardUpgrade, type Outgoing } from './forward-request.ts'
import { type Admission, admit, schemeOf } from './preview-access.ts'
import { type PreviewTarget, parsePreviewHost } from './preview-address.ts'
import { headersInside } from './preview-headers.ts'
import { PreviewRefusal, refuse } from './preview-refusal.ts'
import { withTunnel } from './with-tunnel.ts'

export interface PreviewOptions {
  host: string
  port: number
  /** Fails where the port is in use; otherwise takes another. */
  isFixed: boolean
  /** What clients reach this listener by, where that is not `http://localhost` and its port. */
  url?: string | undefined
  apiKey?: string | undefined
}

export interface PreviewServer {
  /** Previews are origins below it. */
  base: URL
  /** Signs links. */
  linkKey: Buffer
  close(): Promise<void>
}

const MAX_CONNECTIONS = 4096
const MAX_HEADER_BYTES = 32 * 1024
const HEAD_TIMEOUT_MS = 30_000
const KEEP_ALIVE_MS = 30_000
/** A client that is gone without a word would hold its session awake for ever. */
const DEAD_CLIENT_CHECK_MS = 60_000
/** What is under way when the server stops. */
const FAREWELL_MS = 1_000

/** A listener of its own for previews: what they hold is untrusted, so they share no origin with the API. */
export async function startPreviewServer(
  sessions: SessionDeps,
  options: PreviewOptions,
): Promise<PreviewServer> {
  const server = http.createServer({
    maxHeaderSize: MAX_HEADER_BYTES,
    headersTimeout: HEAD_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAlive: true,
    keepAliveInitialDelay: DEAD_CLIENT_CHECK_MS,
    noDelay: true,
    requestTimeout: 0, // Uploads take as long as they take.
    // Clients offer HTTP/2 in the same way, and are fine without.
    shouldUpgradeCallback: ({ headers }) => headers.upgrade?.toLowerCase() === 'websocket',
  })
  server.maxConnections = MAX_CONNECTIONS
  await listen(server, options)
  const { port } = server.address() as AddressInfo
  const base = new URL(options.url ?? `http://localhost:${port}`)
  const linkKey = sessions.secrets.deriveKey('preview links')
  const previews = new Previews(sessions, { db: sessions.db, apiKey: options.apiKey, linkKey, base })
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  server.on('request', (request, response) => void previews.serve(request, response))
  server.on('upgrade', (request, client: Socket, head) => void previews.upgrade(request, client, head))
  return { base, linkKey, close: () => close(server, sockets) }
}

class Previews {
  readonly #sessions: SessionDeps
  readonly #access: Parameters<typeof admit>[0]

  constructor(sessions: SessionDeps, access: Parameters<typeof admit>[0]) {
    this.#sessions = sessions
    this.#access = access
  }

  async serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    await this.#answer(request, response, (outgoing) => forwardRequest(request, response, outgoing))
  }

  async upgrade(request: http.IncomingMessage, client: Socket, head: Buffer): Promise<void> {
    client.on('error', () => client.destroy())
    const response = new http.ServerResponse(request)
    response.shouldKeepAlive = false
    response.assignSocket(client)
    response.once('finish', () => client.destroySoon())
    await this.#answer(request, response, (outgoing) =>
      forwardUpgrade(request, response, { client, head }, outgoing),
    )
  }

  async #answer(
    request: http.IncomingMessage,
    response: http.ServerResponse,
    forward: (outgoing: Outgoing) => Promise<void>,
  ): Promise<void> {
    const { base } = this.#access
    const startedMs = performance.now()
    let target: PreviewTarget | undefined
    try {
      target = parsePreviewHost(base, request.headers.host)
      if (!target) throw noSuchPreview(base)
      const admission = await admit(this.#access, request, target)
      if (admission.cookie !== undefined) return redirect(request, response, admission)
      keepFromOthers(request, response)
      const { path } = admission
      const headers = headersInside(request, target, admission, base)
      const known = target
      await withTunnel(this.#sessions, admission, target, (tunnel) =>
        forward({ tunnel, path, headers, target: known }),
      )
    } catch (error) {
      const fault = refuse(request, response, error)
      if (fault !== undefined) this.#sessions.log.error({ err: fault, ...target }, 'preview failed')
    } finally {
      this.#log(request, response, target, startedMs)
    }
  }

  /** Not the path, which is the user's own. A WebSocket has no status of ours. */
  #log(
    { method }: http.IncomingMessage,
    { headersSent, statusCode }: http.ServerResponse,
    target: PreviewTarget | undefined,
    startedMs: number,
  ): void {
    const ms = Math.round((performance.now() - startedMs) * 10) / 10
    const facts = { ...target, method, ...(headersSent && { statusCode }), ms }
    this.#sessions.log.info(facts, 'preview request')
  }
}

/** Over plain http most browsers do not say whose page asks. Then they are told which may use the answer. */
function keepFromOthers({ headers }: http.IncomingMessage, response: http.ServerResponse): void {
  if (headers['sec-fetch-site'] === undefined)
    response.setHeader('cross-origin-resource-policy', 'same-origin')
}

const noSuchPreview = ({ host }: URL) =>
  new PreviewRefusal(
    404,
    'route_not_found',
    'There is no preview at this address',
    `A preview is at <port>-<session>.${host}; the API is elsewhere.`,
  )

/** To the same address without the token: it would stay in the history, and the page inside could read it. */
function redirect(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  { path, cookie }: Admission,
): void {
  response.writeHead(303, {
    // Whole, since a path may begin with two slashes.
    location: `${schemeOf(request)}://${request.headers.host}${path}`,
    'set-cookie': cookie,
    'cache-control': 'no-store',
    'referrer-policy': 'no-referrer',
  })
  response.end()
}

async function listen(server: http.Server, { host, port, isFixed }: PreviewOptions): Promise<void> {
  const at = (each: number) =>
    new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen(each, host, () => {
        server.off('error', reject)
        resolve()
      })
    })
  await at(port).catch((error: NodeJS.ErrnoException) => {
    if (isFixed || error.code !== 'EADDRINUSE') throw error
    return at(0)
  })
}

async function close(server: http.Server, sockets: Set<Socket>): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve))
  server.closeIdleConnections()
  const timer = setTimeout(() => {
    for (const socket of sockets) socket.destroy()
  }, FAREWELL_MS)
  await closed
  clearTimeout(timer)
}
