import type { Socket } from 'node:net'
import { MAX_CLIENT_HELLO_BYTES, parseClientHello } from './client-hello.ts'
import { isCredentialName } from './credential.ts'
import { assertPlainHttp } from './credential-request.ts'
import { EgressRefusal, type EgressRoutes, type Route } from './egress-routes.ts'
import type { Destination } from './network-policy.ts'

const ESTABLISHED = 'HTTP/1.1 200 Connection established\r\n\r\n'
/** A fatal alert, `access_denied`: after the 200 of CONNECT it is the clearest that can be said. */
const TLS_ACCESS_DENIED = Buffer.from([21, 3, 3, 0, 2, 2, 49])

export interface TunnelOptions {
  helloTimeoutMs: number
  /** Serves HTTP on a tunnel's own socket, every request of it to this destination. */
  serveHttp: (client: Socket, destination: Destination) => void
}

/**
 * Serves CONNECT. A tunnel carries TLS that names the host asked for; on port 80, where Node's `fetch` tunnels too,
 * HTTP, read and forwarded as any other; and anything else only where the policy names the port or is open.
 */
export async function openTunnel(
  routes: EgressRoutes,
  destination: Destination,
  client: Socket,
  { helloTimeoutMs, serveHttp }: TunnelOptions,
): Promise<void> {
  if (isCredentialName(destination.host)) {
    assertPlainHttp(destination)
    client.write(ESTABLISHED)
    return serveHttp(client, destination)
  }
  const { isAnyProtocol } = routes.check({ destination, addresses: [], protocol: undefined })
  if (destination.port === 80 && !isAnyProtocol) {
    client.write(ESTABLISHED)
    return serveHttp(client, destination)
  }
  const route = await routes.open(destination, client)
  const { upstream } = route
  upstream.on('error', () => client.destroy())
  client.write(ESTABLISHED)
  if (isAnyProtocol) upstream.pipe(client) // The server may be the one to speak first.
  const { bytes, protocol } = await readOpening(client, isAnyProtocol ? undefined : helloTimeoutMs)
  route.protocol = protocol
  try {
    routes.check(route)
  } catch (error) {
    if (!(error instanceof EgressRefusal)) throw error
    upstream.unpipe(client).destroy()
    client.end(typeof route.protocol === 'object' ? TLS_ACCESS_DENIED : '')
    return client.destroySoon()
  }
  if (!isAnyProtocol) upstream.pipe(client)
  upstream.write(bytes)
  client.pipe(upstream)
}

/** What a client says first. One that says too little in time or too much is dropped. */
function readOpening(
  client: Socket,
  timeoutMs: number | undefined,
): Promise<{ bytes: Buffer; protocol: Route['protocol'] }> {
  return new Promise((resolve) => {
    let bytes = Buffer.alloc(0)
    const timer = timeoutMs === undefined ? undefined : setTimeout(() => client.destroy(), timeoutMs)
    const finish = (protocol: Route['protocol']) => {
      clearTimeout(timer)
      client.off('data', onData).off('end', onEnd).off('close', onClose).pause()
      resolve({ bytes, protocol })
    }
    const onData = (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk])
      const hello = parseClientHello(bytes)
      if (hello !== 'need more') finish(hello)
      else if (bytes.length > MAX_CLIENT_HELLO_BYTES) client.destroy()
    }
    const onEnd = () => finish(bytes.length > 0 ? 'not tls' : undefined)
    const onClose = () => finish(undefined)
    client.on('data', onData).on('end', onEnd).on('close', onClose)
  })
}
