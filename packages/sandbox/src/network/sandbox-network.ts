import { chmod, mkdir, rm } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import type { Owner } from '../provider.ts'
import type { FindCredential } from './credential.ts'
import type { EgressDenied } from './denial-log.ts'
import { type EgressProxy, startEgressProxy } from './egress-proxy.ts'
import type { Budget } from './model/budget.ts'
import { createModelGuard } from './model/model-guard.ts'
import { type ModelProxy, type ModelUpstream, startModelProxy } from './model-proxy.ts'
import { decide, type NetworkPolicy, parseAuthority } from './network-policy.ts'
import { type AskForTunnel, TunnelHost } from './tunnel-host.ts'

export interface SandboxNetworkOptions {
  /** Folder for the sockets; gone with them. */
  runDir: string
  owner: Owner | undefined
  modelToken: string
  upstream: ModelUpstream
  modelIdleTimeoutMs: number
  budget: Budget
  policy: NetworkPolicy
  onDenied: (event: EgressDenied) => void
  findCredential: FindCredential | undefined
  closedPorts: ReadonlySet<number> | undefined
}

/** The ways out of one sandbox, to the model API and to what its network policy allows, and the one in. */
export class SandboxNetwork {
  readonly modelSocket: string
  readonly egressSocket: string
  readonly tunnelSocket: string
  readonly #options: SandboxNetworkOptions
  #policy: NetworkPolicy
  #model: ModelProxy | undefined
  #egress: EgressProxy | undefined
  #tunnels: TunnelHost | undefined

  private constructor(options: SandboxNetworkOptions) {
    this.#options = options
    this.#policy = options.policy
    this.modelSocket = join(options.runDir, 'model.sock')
    this.egressSocket = join(options.runDir, 'egress.sock')
    this.tunnelSocket = join(options.runDir, 'tunnel.sock')
  }

  /** Leaves nothing behind where it cannot start. */
  static async start(options: SandboxNetworkOptions): Promise<SandboxNetwork> {
    const network = new SandboxNetwork(options)
    try {
      await network.#listen()
      return network
    } catch (error) {
      await network.close()
      throw error
    }
  }

  /** Applies at once, also to connections that are open. */
  setPolicy(policy: NetworkPolicy): void {
    this.#policy = policy
    this.#egress?.policyChanged()
  }

  /** Bytes that went to and came from elsewhere than the model. */
  traffic(): number {
    return this.#egress?.traffic() ?? 0
  }

  /** A connection to a port inside, which `ask` has the bridge make; undefined where nothing listens there. */
  async openTunnel(port: number, ask: AskForTunnel): Promise<Socket | undefined> {
    return this.#tunnels?.open(port, ask)
  }

  async close(): Promise<void> {
    await Promise.all([this.#model?.close(), this.#egress?.close(), this.#tunnels?.close()])
    await rm(this.#options.runDir, { recursive: true, force: true })
  }

  async #listen(): Promise<void> {
    const { runDir, owner, modelToken, upstream, modelIdleTimeoutMs, budget } = this.#options
    const { onDenied, findCredential, closedPorts } = this.#options
    await mkdir(runDir, { recursive: true })
    await chmod(runDir, 0o711)
    const guard = createModelGuard({
      budget,
      policy: {
        isOpen: () => this.#policy.mode === 'open',
        allows: (host, port) => this.#allows(host, port),
      },
    })
    this.#model = await startModelProxy({
      socketPath: this.modelSocket,
      owner,
      token: modelToken,
      upstream,
      idleTimeoutMs: modelIdleTimeoutMs,
      guard,
    })
    this.#egress = await startEgressProxy({
      socketPath: this.egressSocket,
      owner,
      policy: () => this.#policy,
      onDenied,
      findCredential,
      closedPorts,
    })
    this.#tunnels = await TunnelHost.listen(this.tunnelSocket, owner)
  }

  #allows(host: string, port: number): boolean {
    const destination = parseAuthority(host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`)
    return destination !== undefined && decide(this.#policy, destination).allowed
  }
}
