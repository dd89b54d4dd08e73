import { randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { AshError, type SessionSetup } from '@ash-ai/shared'
import { BridgeClient } from './bridge-client.ts'
import type { ResourceLimits } from './limits/resource-limits.ts'
import { type LimitHit, LimitWatch } from './limits/watch-limits.ts'
import type { EgressDenied } from './network/denial-log.ts'
import type { Budget } from './network/model/budget.ts'
import type { ModelUpstream } from './network/model-proxy.ts'
import type { NetworkPolicy } from './network/network-policy.ts'
import { SandboxNetwork } from './network/sandbox-network.ts'
import type { Owner, SandboxExit, SandboxProcess, SandboxProvider } from './provider.ts'
import type { Runtime } from './runtime.ts'
import { createSessionDirs, type SessionDirs } from './session-dirs.ts'

const READY_TIMEOUT_MS = 20_000
const EXIT_TIMEOUT_MS = 2_000

export interface SandboxRequest {
  sandboxId: string
  dirs: SessionDirs
  agentDir: string
  owner: Owner | undefined
  limits: ResourceLimits
  network: NetworkPolicy
  budget: Budget
  /** Hears of destinations that were refused. */
  onDenied?: (event: EgressDenied) => void
  /** Hears of limits that were met; the sandbox may still be alive. */
  onLimit?: (hit: LimitHit) => void
  setup: Omit<SessionSetup, 'modelToken'>
}

/** A live sandbox whose bridge answers. */
export interface Sandbox {
  id: string
  bridge: BridgeClient
  exited: Promise<SandboxExit>
  /** Whether the kernel has just killed something inside for memory. */
  hasJustKilled(): Promise<boolean>
  /** Applies at once, also to open connections. */
  setNetwork(policy: NetworkPolicy): void
  stop(): Promise<void>
}

interface ManagerOptions {
  provider: SandboxProvider
  runtime: Runtime
  upstream: ModelUpstream
  modelIdleTimeoutMs: number
  /** Variables every bridge gets beside the fixed ones. */
  env: Record<string, string>
}

/** Folders + model proxy + provider + bridge = one sandbox. Whatever fails on the way is taken down again. */
export class SandboxManager {
  readonly provider: SandboxProvider
  readonly #options: ManagerOptions

  constructor(options: ManagerOptions) {
    this.#options = options
    this.provider = options.provider
  }

  async start(request: SandboxRequest): Promise<Sandbox> {
    const modelToken = `ash-session-${randomBytes(24).toString('base64url')}`
    let network: SandboxNetwork | undefined
    let process: SandboxProcess | undefined
    try {
      await createSessionDirs(request.dirs, request.agentDir, request.owner)
      network = await this.#startNetwork(request, modelToken)
      const started = await this.#startProcess(request, network)
      process = started
      const bridge = new BridgeClient(started.stream, () => explainEnd(started, request))
      await becomesReady(bridge, started)
      await bridge.call({ cmd: 'configure', session: { ...request.setup, modelToken } })
      return liveSandbox(request, started, bridge, network)
    } catch (error) {
      await process?.kill()
      await network?.close()
      throw asStartFailure(error)
    }
  }

  #startNetwork(request: SandboxRequest, modelToken: string): Promise<SandboxNetwork> {
    return SandboxNetwork.start({
      runDir: request.dirs.run,
      owner: request.owner,
      modelToken,
      upstream: this.#options.upstream,
      modelIdleTimeoutMs: this.#options.modelIdleTimeoutMs,
      budget: request.budget,
      policy: request.network,
      onDenied: request.onDenied ?? (() => {}),
    })
  }

  #startProcess(
    { sandboxId, dirs, agentDir, owner, limits }: SandboxRequest,
    { modelSocket, egressSocket }: SandboxNetwork,
  ): Promise<SandboxProcess> {
    return this.provider.start({
      id: sandboxId,
      runtime: this.#options.runtime,
      agentDir,
      workspaceDir: dirs.workspace,
      homeDir: dirs.home,
      modelSocket,
      egressSocket,
      owner,
      limits,
      env: this.#options.env,
    })
  }
}

function liveSandbox(
  request: SandboxRequest,
  process: SandboxProcess,
  bridge: BridgeClient,
  network: SandboxNetwork,
): Sandbox {
  const watch = new LimitWatch(process, request.limits, request.onLimit)
  const stop = async () => {
    watch.stop()
    bridge.close(new AshError('sandbox_died', 'The sandbox was stopped'))
    await process.kill()
    await network.close()
  }
  let stopping: Promise<void> | undefined
  const stopOnce = () => {
    stopping ??= stop()
    return stopping
  }
  // Broken protocol, silence or death: a sandbox without its bridge is of no use to anybody.
  void bridge.closed.then(stopOnce)
  return {
    id: request.sandboxId,
    bridge,
    exited: process.exited,
    hasJustKilled: () => watch.hasJustKilled(),
    setNetwork: (policy) => network.setPolicy(policy),
    stop: stopOnce,
  }
}

/** A sandbox whose bridge is gone is as good as dead; what killed it is known when it is. */
async function explainEnd(process: SandboxProcess, { limits }: SandboxRequest): Promise<AshError> {
  const exit = await Promise.race([process.exited, delay(EXIT_TIMEOUT_MS, undefined, { ref: false })])
  if (exit && exit.usage.oomKills > 0) {
    return new AshError(
      'oom_killed',
      `The sandbox used more than its ${limits.memoryMb} MB of memory and was killed`,
    )
  }
  return new AshError('sandbox_died', 'The sandbox ended unexpectedly')
}

async function becomesReady(bridge: BridgeClient, process: SandboxProcess): Promise<void> {
  const timer = new AbortController()
  const late = new Promise<'late'>((resolve) => {
    const timeout = setTimeout(() => resolve('late'), READY_TIMEOUT_MS)
    timer.signal.addEventListener('abort', () => clearTimeout(timeout))
  })
  const outcome = await Promise.race([bridge.ready, process.exited, late])
  timer.abort()
  if (outcome === undefined) return
  const reason =
    outcome === 'late'
      ? `the bridge was not ready within ${READY_TIMEOUT_MS / 1000} s`
      : `it exited with ${outcome.code ?? outcome.signal}: ${outcome.stderr.trim() || 'no message'}`
  throw new AshError('sandbox_start_failed', `The sandbox did not start: ${reason}`)
}

/** What the operating system refuses, such as a missing agent folder or a full disk, is a failure to start. */
function asStartFailure(error: unknown): unknown {
  const { code, syscall } = error as NodeJS.ErrnoException
  if (code === undefined || syscall === undefined) return error
  // Without the path: the message reaches clients, the cause the log.
  return new AshError('sandbox_start_failed', `The sandbox did not start: ${code} in ${syscall}`, {
    cause: error,
  })
}
