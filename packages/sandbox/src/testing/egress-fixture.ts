import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import http from 'node:http'
import { type AddressInfo, connect, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { onTestFinished } from 'vitest'
import type { EgressDenied } from '../network/denial-log.ts'
import { type EgressProxy, type EgressProxyOptions, startEgressProxy } from '../network/egress-proxy.ts'
import { type NetworkPolicy, parsePolicy } from '../network/network-policy.ts'
import { tempDir } from './temp-dir.ts'

/** Stands for any public address: connections to it end up on this machine, at the same port. */
export const PUBLIC = '93.184.216.34'

export interface TestProxy extends EgressProxy {
  socketPath: string
  denied: EgressDenied[]
  /** Every name that was looked up. */
  lookups: string[]
  /** Every list of addresses that was connected to. */
  dialled: string[][]
  setPolicy(policy: NetworkPolicy): void
}

/** A proxy whose names are `names`; a name's second list answers the second lookup. */
export async function startTestProxy(
  network: 'none' | 'open' | string[],
  { names = {}, ...more }: Partial<EgressProxyOptions> & { names?: Record<string, string[][]> } = {},
): Promise<TestProxy> {
  const socketPath = join(await tempDir(), 'egress.sock')
  const seen = { denied: [] as EgressDenied[], lookups: [] as string[], dialled: [] as string[][] }
  let policy = parsePolicy(network)
  const proxy = await startEgressProxy({
    socketPath,
    policy: () => policy,
    onDenied: (event) => seen.denied.push(event),
    resolve: async (host) => {
      const answers = names[host] ?? [[host]]
      const answer = answers[seen.lookups.filter((name) => name === host).length] ?? answers.at(-1) ?? []
      seen.lookups.push(host)
      return answer
    },
    connect: (addresses, port) => {
      seen.dialled.push(addresses)
      return connect({ host: '127.0.0.1', port, allowHalfOpen: true })
    },
    ...more,
  })
  onTestFinished(() => proxy.close())
  const setPolicy = (next: NetworkPolicy) => {
    policy = next
  }
  return { ...proxy, ...seen, socketPath, setPolicy }
}

/** Listens on a port of this machine until the test is over. */
export async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

export function dial({ socketPath }: TestProxy): Socket {
  const socket = connect(socketPath)
  socket.on('error', () => {})
  onTestFinished(() => void socket.destroy())
  return socket
}

/** Sends bytes as they are and gives everything that comes back until the proxy closes. */
export async function sendRaw(proxy: TestProxy, bytes: string): Promise<string> {
  const socket = dial(proxy)
  socket.write(bytes)
  return text(socket).catch(() => '')
}

export interface Reply {
  status: number | undefined
  headers: http.IncomingHttpHeaders
  body: string
}

/** Sends a request for a URL the way proxies get it. */
export async function ask(
  { socketPath }: TestProxy,
  url: string,
  { body, ...options }: http.RequestOptions & { body?: string | Buffer } = {},
): Promise<Reply> {
  const headers = { host: new URL(url).host, ...options.headers }
  const request = http.request({ socketPath, path: url, agent: false, ...options, headers })
  request.end(body)
  const [response] = (await once(request, 'response')) as [http.IncomingMessage]
  return { status: response.statusCode, headers: response.headers, body: await text(response) }
}

/** Asks for a tunnel; `socket` is what comes after the reply. */
export async function openConnect(
  proxy: TestProxy,
  authority: string,
): Promise<{ head: string; socket: Socket }> {
  const socket = dial(proxy)
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`)
  const [chunk] = (await once(socket, 'data')) as [Buffer]
  socket.pause()
  return { head: chunk.toString(), socket }
}

let pair: { key: string; cert: string } | undefined

/** A key and a certificate that nobody trusts. The same each time: to make them takes a process. */
export function certificate(): { key: string; cert: string } {
  pair ??= makeCertificate()
  return pair
}

function makeCertificate(): { key: string; cert: string } {
  const make =
    'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=test -keyout -'
  const pem = execFileSync('openssl', make.split(' '), {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  const [key = '', cert = ''] = pem.split(/(?=-----BEGIN CERTIFICATE)/)
  return { key, cert }
}
