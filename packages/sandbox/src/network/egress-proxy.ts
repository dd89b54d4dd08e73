import http from 'node:http'
import type { Socket } from 'node:net'
import { type FindCredential, isCredentialName } from './credential.ts'
import { type CredentialRouteOptions, forwardWithCredential } from './credential-request.ts'
import type { EgressDenied } from './denial-log.ts'
import { forwardRequest, targetOf } from './egress-request.ts'
import {
  type EgressCounters,
  EgressRefusal,
  EgressRoutes,
  type EgressRoutesOptions,
} from './egress-routes.ts'
import { openTunnel } from './egress-tunnel.ts'
import { listenOnPath } from './listen-on-path.ts'
import { type Destination, type NetworkPolicy, parseAuthority } from './network-policy.ts'

interface EgressLimits {
  /** Connections from the sandbox, and from there to the world, at one time. */
  maxConnections: number
  maxHeaderBytes: number
  /** To send the head of a request, or after CONNECT the first message of TLS. */
  headTimeoutMs: number
  connectTimeoutMs: number
  idleTimeoutMs: number
}

export interface EgressProxyOptions {
  socketPath: string
  /** Host user that may connect; by default the server's own. */
  owner?: { uid: number; gid: number } | undefined
  /** Read for each connection and request: a change applies to the next one. */
  policy: () => NetworkPolicy
  onDenied: (event: EgressDenied) => void
  /** What is at `http://<name>.credentials.ash/`; by default nothing. */
  findCredential?: FindCredential | undefined
  ca?: CredentialRouteOptions['ca']
  closedPorts?: EgressRoutesOptions['closedPorts']
  resolve?: EgressRoutesOptions['resolve']
  connect?: EgressRoutesOptions['connect']
  limits?: Partial<EgressLimits>
}

export interface EgressProxy {
  counters(): EgressCounters
  /** Applies a changed policy to connections that are open, too. */
  policyChanged(): void
  /** Bytes that have passed, in either direction. */
  traffic(): number
  close(): Promise<void>
}

const DEFAULT_LIMITS: EgressLimits = {
  maxConnections: 256,
  maxHeaderBytes: 16 * 1024,
  headTimeoutMs: 10_000,
  connectTimeoutMs: 10_000,
  idleTimeoutMs: 5 * 60_000,
}
const KEEP_ALIVE_MS = 60_000
const FAREWELL_MS = 1_000

/**
 * The only way out of one sandbox: an HTTP proxy that takes `http://` URLs and CONNECT, and carries out what the
 * policy allows. Each request is decided anew, so a redirect is just another request. WebSockets need CONNECT.
 */
export async function startEgressProxy(options: EgressProxyOptions): Promise<EgressProxy> {
  const limits = { ...DEFAULT_LIMITS, ...options.limits }
  const routes = new EgressRoutes({ ...options, ...limits, maxRoutes: limits.maxConnections })
  const credentials = {
    findCredential: options.findCredential ?? (async () => undefined),
    ca: options.ca,
    connectTimeoutMs: limits.connectTimeoutMs,
  }
  const serve = async (request: http.IncomingMessage, response: http.ServerResponse) => {
    const target = targetOf(request, bound.get(request.socket))
    if (isCredentialName(target.destination.host))
      return forwardWithCredential(routes, target, request, response, credentials)
    return forwardRequest(routes, target, request, response)
  }
  const clients = new Set<Socket>()
  const bound = new WeakMap<Socket, Destination>()
  const server = http.createServer({
    maxHeaderSize: limits.maxHeaderBytes,
    headersTimeout: limits.headTimeoutMs,
    connectionsCheckingInterval: limits.headTimeoutMs,
    requestTimeout: 0,
    keepAliveTimeout: KEEP_ALIVE_MS,
    insecureHTTPParser: false,
  })
  server.maxConnections = limits.maxConnections
  server.timeout = limits.idleTimeoutMs
  let endedBytes = 0
  server.on('connection', (client) => {
    if (clients.has(client)) return // Speaks HTTP inside its tunnel.
    clients.add(client)
    client.once('close', () => {
      clients.delete(client)
      endedBytes += bytesOf(client)
    })
  })
  server.on('request', (request, response) => {
    // A response that has to wait for another is a pipelined one: no client needs it, and it would outlive its client.
    if (!response.socket) return request.socket.destroy()
    serve(request, response).catch((error) => {
      answer(response, toRefusal(error))
    })
  })
  server.on('connect', (request, client: Socket, head) => {
    client.on('error', () => client.destroy())
    client.setTimeout(limits.idleTimeoutMs, () => client.destroy())
    if (head.length > 0) client.unshift(head)
    const destination = bound.has(client) ? undefined : parseAuthority(request.url ?? '')
    if (!destination) return answerConnect(client, new EgressRefusal(400, 'CONNECT takes host:port, once'))
    const serveHttp = () => {
      bound.set(client, destination)
      server.emit('connection', client)
    }
    openTunnel(routes, destination, client, { helloTimeoutMs: limits.headTimeoutMs, serveHttp }).catch(
      (error) => answerConnect(client, toRefusal(error)),
    )
  })
  const release = await listenOnPath(server, options.socketPath, options.owner)
  return {
    counters: () => routes.counters(),
    policyChanged: () => routes.policyChanged(),
    traffic: () => [...clients].reduce((sum, client) => sum + bytesOf(client), endedBytes),
    async close() {
      const closed = new Promise((resolve) => server.close(resolve))
      for (const client of clients) client.destroy()
      await closed
      routes.close()
      await release()
    },
  }
}

const bytesOf = ({ bytesRead, bytesWritten }: Socket) => bytesRead + bytesWritten

function answer(response: http.ServerResponse, refusal: EgressRefusal): void {
  if (response.headersSent) {
    response.destroy()
    return
  }
  const body = bodyOf(refusal)
  response
    .writeHead(refusal.status, phraseOf(refusal), {
      'content-type': 'text/plain; charset=utf-8',
      'content-length': Buffer.byteLength(body),
    })
    .end(body)
}

function answerConnect(client: Socket, refusal: EgressRefusal): void {
  if (client.destroyed) return
  const body = bodyOf(refusal)
  const head = [
    `HTTP/1.1 ${refusal.status} ${phraseOf(refusal)}`,
    'content-type: text/plain; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    'connection: close',
  ]
  // Reads on for a moment: closed with bytes unread, the socket would lose the answer.
  client.resume().end(`${head.join('\r\n')}\r\n\r\n${body}`)
  setTimeout(() => client.destroy(), FAREWELL_MS).unref()
}

/** Tools that hide the body of a refused CONNECT still show this line. */
function phraseOf({ status, setting }: EgressRefusal): string {
  const phrase = http.STATUS_CODES[status] ?? 'Refused'
  return setting === undefined ? phrase : `${phrase} by network policy; allowed by ${setting}`
}

function bodyOf({ message, setting }: EgressRefusal): string {
  return `Ash: ${message}.\n${setting === undefined ? '' : `This setting allows it: ${setting}\n`}`
}

function toRefusal(error: unknown): EgressRefusal {
  if (error instanceof EgressRefusal) return error
  // Node refuses to send some things that it accepts; whatever it is, one sandbox must not end the server.
  return new EgressRefusal(
    500,
    `the request cannot be carried out (${(error as NodeJS.ErrnoException).code})`,
  )
}
