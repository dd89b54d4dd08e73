import { connect, isIP, type Socket } from 'node:net'
import type { Writable } from 'node:stream'
import type { ClientHello } from './client-hello.ts'
import { DenialLog, type EgressDenied } from './denial-log.ts'
import { isForbiddenAddress, isLocalAddress, ownAddresses } from './forbidden-address.ts'
import {
  type Decision,
  type Destination,
  decide,
  type NetworkPolicy,
  type Objection,
  settingFor,
} from './network-policy.ts'
import { resolveHost } from './resolve-host.ts'

export interface EgressRoutesOptions {
  /** Read for each decision: a change takes effect at once. */
  policy: () => NetworkPolicy
  onDenied: (event: EgressDenied) => void
  /** Of this machine, closed whatever a policy says: who listens there takes every program of the machine for a friend. */
  closedPorts?: ReadonlySet<number> | undefined
  resolve?: ((host: string) => Promise<string[]>) | undefined
  /** Connects to one of these addresses, which have been checked, and looks nothing up. */
  connect?: ((addresses: string[], port: number) => Socket) | undefined
  maxRoutes: number
  connectTimeoutMs: number
}

/** A way out of the sandbox as far as it is known: what was asked for, where that leads, what is spoken there. */
export interface Route {
  destination: Destination
  addresses: string[]
  protocol: 'http' | 'not tls' | ClientHello | undefined
  /** Decides instead of the sandbox's own: for a host that a credential names. */
  policy?: NetworkPolicy | undefined
}

export interface OpenRoute extends Route {
  client: Writable
  upstream: Socket
}

/** Traffic of a sandbox since its start; bytes as they cross the network, TLS and headers included. */
export interface EgressCounters {
  sentBytes: number
  receivedBytes: number
  connections: number
  denied: number
}

/** A request that is not carried out, as the client is told. */
export class EgressRefusal extends Error {
  readonly status: number
  readonly setting: string | undefined

  constructor(status: number, message: string, setting?: string) {
    super(message)
    this.status = status
    this.setting = setting
  }
}

/** The connections of one sandbox to the world: opened if the policy allows them, dropped when it no longer does. */
export class EgressRoutes {
  readonly #options: EgressRoutesOptions
  readonly #denials: DenialLog
  readonly #routes = new Set<Route & { client: Writable }>()
  readonly #upstreams = new Set<Socket>()
  readonly #closed = { sentBytes: 0, receivedBytes: 0, connections: 0 }

  constructor(options: EgressRoutesOptions) {
    this.#options = options
    this.#denials = new DenialLog(options.onDenied)
  }

  /** Connects to a destination for as long as the client stays. Throws an `EgressRefusal`. */
  async open(
    destination: Destination,
    client: Writable,
    protocol?: 'http',
    policy?: NetworkPolicy,
  ): Promise<OpenRoute> {
    const route = { destination, client, protocol, policy, addresses: [] as string[] }
    this.check(route) // Before the lookup: of a denied name not even a question leaves.
    if (this.#routes.size >= this.#options.maxRoutes)
      throw new EgressRefusal(503, `this sandbox already has ${this.#routes.size} connections`)
    this.#routes.add(route)
    client.once('close', () => this.#routes.delete(route))
    route.addresses = await this.#resolve(destination.host)
    if (client.destroyed) throw new EgressRefusal(502, 'the client is gone')
    this.check(route)
    return Object.assign(route, { upstream: await this.#connect(route) })
  }

  /** Throws if the policy as it is now objects to what is known of a route. Every decision is this one. */
  check(route: Route): Decision & { allowed: true } {
    const { policy, closedPorts } = this.#options
    const decision = judge(route.policy ?? policy(), route, closedPorts)
    return decision.allowed ? decision : this.refuse(route.destination, decision)
  }

  /** Notes a denial, and throws it for the client to be told. */
  refuse({ host, port }: Destination, { reason, setting }: Objection): never {
    this.#denials.add({ host, port, reason, setting })
    const place = `${host} on port ${port}`
    throw new EgressRefusal(403, `this sandbox may not reach ${place}: ${reason}`, setting)
  }

  /** Drops what the policy no longer allows, also while it is still connecting. */
  policyChanged(): void {
    for (const route of this.#routes) {
      try {
        this.check(route)
      } catch {
        route.client.destroy()
      }
    }
  }

  counters(): EgressCounters {
    const total = { ...this.#closed, denied: this.#denials.total }
    for (const { bytesWritten, bytesRead } of this.#upstreams) {
      total.sentBytes += bytesWritten
      total.receivedBytes += bytesRead
    }
    return total
  }

  /** Once the clients are gone, and with them their connections. */
  close(): void {
    this.#denials.close()
  }

  async #resolve(host: string): Promise<string[]> {
    const found = await (this.#options.resolve ?? resolveHost)(host).catch(codeOf)
    if (Array.isArray(found) && found.length > 0) return found
    const why = Array.isArray(found) ? 'no address' : found
    throw new EgressRefusal(502, `the name ${host} cannot be resolved (${why})`)
  }

  async #connect({ client, addresses, destination }: Route & { client: Writable }): Promise<Socket> {
    const upstream = (this.#options.connect ?? connectToOneOf)(addresses, destination.port)
    this.#upstreams.add(upstream)
    this.#closed.connections++
    upstream.once('close', () => this.#count(upstream))
    client.once('close', () => upstream.destroy())
    const timer = setTimeout(() => upstream.destroy(new Error('timeout')), this.#options.connectTimeoutMs)
    try {
      await new Promise<void>((resolve, reject) => {
        upstream.once('connect', resolve).on('error', reject)
        upstream.once('close', () => reject(new Error('closed')))
      })
    } catch (error) {
      const place = `${destination.host} on port ${destination.port}`
      throw new EgressRefusal(502, `${place} cannot be reached (${codeOf(error)})`)
    } finally {
      clearTimeout(timer)
    }
    return upstream
  }

  #count(upstream: Socket): void {
    this.#upstreams.delete(upstream)
    this.#closed.sentBytes += upstream.bytesWritten
    this.#closed.receivedBytes += upstream.bytesRead
  }
}

const NO_PORTS: ReadonlySet<number> = new Set()

/** The name asked for, the addresses it leads to and the server name that TLS gives must all be allowed, and agree. */
function judge(
  policy: NetworkPolicy,
  { destination, addresses, protocol }: Route,
  closedPorts: ReadonlySet<number> = NO_PORTS,
): Decision {
  const decision = decide(policy, destination)
  if (!decision.allowed) return decision
  if (closedPorts.has(destination.port) && addresses.some((one) => isLocalAddress(one, ownAddresses())))
    return {
      allowed: false,
      reason: 'Ash itself listens there without keys, and sandboxes are not to use it',
    }
  const objection = objectionToAddresses(destination, addresses, decision.isNamed)
  if (objection) return { allowed: false, ...objection }
  if (protocol === 'not tls' && !decision.isAnyProtocol) {
    const reason = 'only TLS may be spoken there, as the network policy does not name the port'
    return { allowed: false, reason, setting: settingFor(destination, { isPortNamed: true }) }
  }
  if (typeof protocol === 'object' && !isNameOf(destination, protocol)) {
    const name = JSON.stringify(protocol.serverName?.slice(0, 253)) ?? 'missing'
    return { allowed: false, reason: `the TLS server name is ${name}, not the host asked for` }
  }
  return decision
}

/** Whoever runs the DNS of a named host may point it at private services, but not at this machine. */
function objectionToAddresses(
  destination: Destination,
  addresses: string[],
  isNamed: boolean,
): Objection | undefined {
  const isLiteral = isIP(destination.host) !== 0 || destination.host === 'localhost'
  if (addresses.length === 0 || (isNamed && isLiteral)) return undefined
  const own = ownAddresses()
  const forbidden = addresses.find((one) =>
    isNamed ? isLocalAddress(one, own) : isForbiddenAddress(one, own),
  )
  if (forbidden === undefined) return undefined
  if (isNamed)
    return { reason: `the name leads to ${forbidden}, which only a policy naming that address may reach` }
  return {
    reason: `${forbidden} is not a public address, and the network policy does not name this very host`,
    setting: settingFor(destination),
  }
}

/** Clients send no name for an address. */
function isNameOf({ host }: Destination, { serverName }: ClientHello): boolean {
  return serverName === undefined ? isIP(host) !== 0 : serverName.toLowerCase() === host
}

function connectToOneOf(addresses: string[], port: number): Socket {
  const checked = addresses.map((address) => ({ address, family: isIP(address) }))
  return connect({
    host: 'checked.invalid', // Never looked up: the answer is the addresses that were checked.
    lookup: (_host, _options, answer) => answer(null, checked),
    port,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: 1_000,
    allowHalfOpen: true,
    noDelay: true,
  })
}

function codeOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return 'code' in error ? String(error.code) : error.message
}
