import http from 'node:http'
import { isIP, type Socket } from 'node:net'
import { type SecureContextOptions, connect as startTls } from 'node:tls'
import {
  authenticate,
  type Credential,
  type CredentialHost,
  credentialNameOf,
  type FindCredential,
  formatCredentialHost,
  parseCredentialHost,
} from './credential.ts'
import { exchange, framingOf, keptHeaders, type Target } from './egress-request.ts'
import { EgressRefusal, type EgressRoutes } from './egress-routes.ts'
import { type Destination, formatAuthority } from './network-policy.ts'

export interface CredentialRouteOptions {
  findCredential: FindCredential
  /** Trusted instead of the roots that Node trusts. */
  ca?: SecureContextOptions['ca']
  connectTimeoutMs: number
}

/** Names one of the credential's hosts other than the first. */
const HOST_HEADER = 'x-ash-host'
/** These answer with the request itself, and the credential in it. */
const ECHOING_METHODS = ['TRACE', 'TRACK']

/**
 * Carries out a request for `http://<name>.credentials.ash/…`: the same path on the credential's own host, over TLS
 * and with the credential added. The network policy is not asked; being given the credential is the permission.
 */
export async function forwardWithCredential(
  routes: EgressRoutes,
  { destination, path }: Target,
  request: http.IncomingMessage,
  response: http.ServerResponse,
  options: CredentialRouteOptions,
): Promise<void> {
  const credential = await permittedCredential(routes, destination, options.findCredential)
  if (response.destroyed) throw new EgressRefusal(502, 'the client is gone')
  if (ECHOING_METHODS.includes(request.method ?? ''))
    throw new EgressRefusal(405, `${request.method} does not go with a credential`)
  const host = chosenHost(routes, destination, credential, request)
  const { [HOST_HEADER]: _host, ...headers } = keptHeaders(request.headersDistinct)
  const sent = authenticate(credential, { path, headers })
  const framing = framingOf(request)
  const policy = { mode: 'allowlist' as const, hosts: [formatAuthority(host)] }
  const { upstream } = await routes.open(host, response, 'http', policy)
  const socket = host.isTls ? await secured(upstream, host, options) : upstream
  const outgoing = http.request({
    createConnection: () => socket,
    method: request.method,
    path: sent.path,
    headers: { ...sent.headers, ...framing, host: hostHeaderOf(host) },
  })
  await exchange(outgoing, request, response, { host: host.host, droppedHeaders: ['set-cookie'] })
}

async function permittedCredential(
  routes: EgressRoutes,
  destination: Destination,
  findCredential: FindCredential,
): Promise<Credential> {
  assertPlainHttp(destination)
  const name = credentialNameOf(destination.host)
  if (name === undefined)
    return routes.refuse(destination, { reason: 'credentials are at http://<name>.credentials.ash/' })
  const credential = await findCredential(name)
  if (credential) return credential
  const reason = `this session was not given a credential "${name}", or it was deleted`
  return routes.refuse(destination, { reason, setting: `credentials: ["${name}"]` })
}

/** What is inside is no server that TLS could be spoken to; outside it is. */
export function assertPlainHttp({ host, port }: Destination): void {
  if (port !== 80) throw new EgressRefusal(400, `a credential is used as http://${host}/, without a port`)
}

function chosenHost(
  routes: EgressRoutes,
  destination: Destination,
  { hosts }: Credential,
  request: http.IncomingMessage,
): CredentialHost {
  const wanted = request.headersDistinct[HOST_HEADER] ?? hosts.slice(0, 1)
  if (wanted.length > 1) throw new EgressRefusal(400, `${HOST_HEADER} names one host`)
  const host = parseCredentialHost(wanted[0] ?? '')
  if (host && hosts.includes(formatCredentialHost(host))) return host
  const name = JSON.stringify(wanted[0]?.slice(0, 253))
  return routes.refuse(destination, { reason: `the host ${name} is not one that this credential is for` })
}

async function secured(
  socket: Socket,
  { host }: CredentialHost,
  { ca, connectTimeoutMs }: CredentialRouteOptions,
): Promise<Socket> {
  const tls = startTls({
    socket,
    host,
    ...(isIP(host) === 0 && { servername: host }),
    ca,
    ALPNProtocols: ['http/1.1'],
    rejectUnauthorized: true,
  })
  const timer = setTimeout(() => tls.destroy(new Error('timeout')), connectTimeoutMs)
  try {
    await new Promise<void>((resolve, reject) => {
      tls.once('secureConnect', resolve).on('error', reject)
      tls.once('close', () => reject(new Error('closed')))
    })
  } catch (error) {
    socket.destroy()
    const { code, message } = error as NodeJS.ErrnoException
    throw new EgressRefusal(502, `TLS with ${host} failed (${code ?? message})`)
  } finally {
    clearTimeout(timer)
  }
  return tls
}

function hostHeaderOf(host: CredentialHost): string {
  return formatAuthority(host).replace(host.isTls ? /:443$/ : /:80$/, '')
}
