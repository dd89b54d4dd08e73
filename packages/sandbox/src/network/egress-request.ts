import http from 'node:http'
import { EgressRefusal, type EgressRoutes } from './egress-routes.ts'
import { type Destination, formatAuthority, parseAuthority } from './network-policy.ts'

/** Between two neighbours only, or decided here anew: where a message ends, for whom it is, what else may follow. */
const NOT_FORWARDED =
  /^(host|content-length|transfer-encoding|connection|keep-alive|proxy-.*|te|trailer|upgrade|http2-settings|expect)$/

/** What is asked for: a host, and a path on it. */
export interface Target {
  destination: Destination
  path: string
}

/** Carries out one plain HTTP request. */
export async function forwardRequest(
  routes: EgressRoutes,
  { destination, path }: Target,
  request: http.IncomingMessage,
  response: http.ServerResponse,
): Promise<void> {
  const headers = {
    ...keptHeaders(request.headersDistinct),
    ...framingOf(request),
    host: hostOf(destination),
  }
  const { upstream } = await routes.open(destination, response, 'http')
  const outgoing = http.request({
    createConnection: () => upstream, // For this request alone, so `Connection: close` goes with it.
    method: request.method,
    path,
    headers,
  })
  await exchange(outgoing, request, response, { host: destination.host })
}

/** Sends the body of a request and passes the answer on, without the headers that are to be dropped. */
export async function exchange(
  outgoing: http.ClientRequest,
  request: http.IncomingMessage,
  response: http.ServerResponse,
  { host, droppedHeaders = [] }: { host: string; droppedHeaders?: string[] },
): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const fail = (why: string) => reject(new EgressRefusal(502, `${host} failed: ${why}`))
    outgoing.on('error', (error) => fail(error.message))
    outgoing.on('upgrade', () => fail('it changed the protocol'))
    outgoing.on('response', (incoming) => {
      try {
        passOn(incoming, response, droppedHeaders)
      } catch (error) {
        fail(String(error)) // Node reads some heads that it would not write.
      }
    })
    response.once('close', resolve)
    request.pipe(outgoing)
  })
}

function passOn(incoming: http.IncomingMessage, response: http.ServerResponse, dropped: string[]): void {
  const { 'content-length': length, 'transfer-encoding': encoding } = incoming.headers
  const headers = Object.entries(keptHeaders(incoming.headersDistinct))
  response.writeHead(incoming.statusCode ?? 502, {
    ...Object.fromEntries(headers.filter(([name]) => !dropped.includes(name))),
    ...(length !== undefined && encoding === undefined && { 'content-length': length }),
  })
  response.flushHeaders()
  // Once the head is out, breaking off is the only honest sign of a failure.
  incoming.on('error', () => response.destroy())
  incoming.pipe(response)
}

/**
 * Where a request goes; `bound` is the destination of the tunnel it came through. What names the destination more
 * than once must agree.
 */
export function targetOf(request: http.IncomingMessage, bound: Destination | undefined): Target {
  const [, authority, rest = ''] = /^http:\/\/([^/?#]*)([^#]*)$/i.exec(request.url ?? '') ?? []
  const isOriginForm = bound !== undefined && request.url?.startsWith('/')
  const destination = isOriginForm ? bound : authority && parseAuthority(authority, 80)
  if (!destination)
    throw new EgressRefusal(400, 'a proxy takes CONNECT host:port and http:// URLs without a user')
  const hosts = request.headersDistinct.host ?? []
  const agrees = hosts.every((host) => {
    const named = parseAuthority(host, 80)
    return named && formatAuthority(named) === formatAuthority(destination)
  })
  if (!agrees || hosts.length > 1) throw new EgressRefusal(400, 'the Host header is not the host asked for')
  const path = isOriginForm ? (request.url ?? '/') : rest
  return { destination, path: path.startsWith('/') ? path : `/${path}` }
}

function hostOf(destination: Destination): string {
  return formatAuthority(destination).replace(/:80$/, '')
}

/** Without those that concern two neighbours only. */
export function keptHeaders(headers: NodeJS.Dict<string[]>): Record<string, string[]> {
  const listed = (headers.connection ?? [])
    .join(',')
    .toLowerCase()
    .split(/[\s,]+/)
  const kept = Object.entries(headers).filter(([name]) => !NOT_FORWARDED.test(name) && !listed.includes(name))
  return Object.fromEntries(kept.map(([name, values]) => [name, values ?? []]))
}

/** Exactly one way to say where the body ends; the parser has refused requests that have two. */
export function framingOf({ headers }: http.IncomingMessage): Record<string, string> {
  const encoding = headers['transfer-encoding']
  if (encoding !== undefined && encoding.toLowerCase() !== 'chunked')
    throw new EgressRefusal(501, `the transfer encoding ${JSON.stringify(encoding)} is not known here`)
  if (encoding !== undefined) return { 'transfer-encoding': 'chunked' }
  return headers['content-length'] === undefined ? {} : { 'content-length': headers['content-length'] }
}
