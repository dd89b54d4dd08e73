import { randomBytes } from 'node:crypto'
import type { Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { AshError, type Language, type SessionSetup, type TunnelResult } from '@ash-ai/shared'
import { BridgeClient, type Pulse } from './bridge-client.ts'
import type { DirectInterpreter } from './interpreters/direct-interpreter.ts'
import { type InterpreterRequest, startInterpreter } from './interpreters/start-interpreter.ts'
import type { Layer } from './layer.ts'
import type { DiskBackend, DiskState } from './limits/disk/disk-backend.ts'
import { PolledDisk } from './limits/disk/polled-disk.ts'
import { type Enclosure, findHostPid } from './limits/enclosure.ts'
import type { ResourceUsage } from './limits/limit-backend.ts'
import type { ResourceLimits } from './limits/resource-limits.ts'
import { type LimitHit, LimitWatch } from './limits/watch-limits.ts'
import { makeFolders } from './make-folders.ts'
import type { FindCredential } from './network/credential.ts'
import type { EgressDenied } from './network/denial-log.ts'
import type { Budget } from './network/model/budget.ts'
import type { ModelUpstream } from './network/model-proxy.ts'
import type { NetworkPolicy } from './network/network-policy.ts'
import { SandboxNetwork } from './network/sandbox-network.ts'
import type { Owner, SandboxExit, SandboxProcess, SandboxProvider } from './provider.ts'
import type { Runtime } from './runtime.ts'
import type { SessionDirs } from './session-dirs.ts'
import { asStartFailure, startFailure } from './start-failure.ts'

const READY_TIMEOUT_MS = 20_000
const EXIT_TIMEOUT_MS = 2_000

/** What a sandbox needs before it is anybody's. */
export interface PrepareRequest {
  sandboxId: string
  dirs: SessionDirs
  /** A new session's workspace begins as a copy of it; without an agent it begins empty. */
  agentDir?: string | undefined
  /** A new session's folders begin as a copy of this instead. */
  layer?: Layer | undefined
  owner: Owner | undefined
  limits: ResourceLimits
  network: NetworkPolicy
  budget: Budget
  /** The credentials that it may use; by default none. */
  findCredential?: FindCredential | undefined
  /** Hears of destinations that were refused. */
  onDenied?: (event: EgressDenied) => void
  /** Hears of limits that were met; the sandbox may still be alive. */
  onLimit?: (hit: LimitHit) => void
  /** Has the agent SDK imported, or an interpreter started, before anybody asks for it. */
  preload?: 'agent' | { language: Language; env: Record<string, string> } | undefined
}

type Setup = Omit<SessionSetup, 'modelToken'>

export interface SandboxRequest extends PrepareRequest {
  setup: Setup
}

/** A sandbox whose bridge answers and that knows of no session yet. */
export interface PreparedSandbox {
  id: string
  exited: Promise<SandboxExit>
  /** Makes it a session's. What fails stops it. */
  configure(setup: Setup): Promise<Sandbox>
  setNetwork(policy: NetworkPolicy): void
  stop(): Promise<void>
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
  /** Bytes that have passed the network so far, the model's aside. */
  traffic(): number
  /** A connection to a port of localhost inside; undefined where nothing listens there. */
  openTunnel(port: number): Promise<Socket | undefined>
  /** Everything inside stands still. */
  readonly isFrozen: boolean
  /** Stops everything inside from running; false where that cannot be done, and then it runs on. */
  freeze(): Promise<boolean>
  /** Lets it go on, at once. */
  thaw(): void
  /** What everything inside has used until now, and holds now. */
  usage(): Promise<ResourceUsage>
  /** Host pids of everything inside; undefined where no control group holds it. */
  pids(): number[] | undefined
  /**
   * Holds a process that the bridge has just started, by its pid inside, together with all that it will start.
   * Undefined where this machine cannot; throws `interpreter_gone` where there is no such process inside.
   */
  enclose(insidePid: number): Promise<Enclosure | undefined>
  /** Also of a frozen one: nothing inside runs on. */
  stop(): Promise<void>
}

interface ManagerOptions {
  provider: SandboxProvider
  /** Holds sessions to their share of the disk; by default by counting. */
  disk?: DiskBackend
  runtime: Runtime
  upstream: ModelUpstream
  modelIdleTimeoutMs: number
  /** Variables every bridge gets beside the fixed ones. */
  env: Record<string, string>
  /** Ports of this machine that no sandbox reaches, whatever its policy says; may change. */
  closedPorts?: ReadonlySet<number>
  /** When a bridge counts as unresponsive, where the default does not suit. */
  pulse?: Pulse
}

/** Folders + model proxy + provider + bridge = one sandbox. Whatever fails on the way is taken down again. */
export class SandboxManager {
  readonly provider: SandboxProvider
  readonly #options: ManagerOptions
  readonly #disk: DiskBackend

  constructor(options: ManagerOptions) {
    this.#options = options
    this.#disk = options.disk ?? new PolledDisk()
    this.provider = options.provider
  }

  async start(request: SandboxRequest): Promise<Sandbox> {
    const prepared = await this.prepare(request)
    return prepared.configure(request.setup)
  }

  /** Everything of a start that needs no session. */
  async prepare(request: PrepareRequest): Promise<PreparedSandbox> {
    this.provider.expectStart()
    const modelToken = `ash-session-${randomBytes(24).toString('base64url')}`
    const network = await this.#startOutside(request, modelToken)
    let process: SandboxProcess | undefined
    try {
      const started = await this.#startProcess(request, network)
      process = started
      const bridge = new BridgeClient(
        started.stream,
        () => explainEnd(started, request),
        this.#options.pulse,
        request.limits.outputMbPerSecond,
      )
      await becomesReady(bridge, started)
      if (request.preload) await inTime(bridge.call(preloadCommand(request.preload)))
      return preparedSandbox(liveSandbox(request, started, bridge, network, this.#disk), modelToken)
    } catch (error) {
      await process?.kill()
      await network.close()
      this.#disk.release(request.dirs)
      throw asStartFailure(error, request)
    }
  }

  /** An interpreter in a sandbox of its own: no bridge, no network. */
  startInterpreter(request: InterpreterRequest): Promise<DirectInterpreter> {
    const { provider } = this
    const { runtime, env } = this.#options
    return startInterpreter({ provider, disk: this.#disk, runtime, env }, request)
  }

  /** Disk and sockets, side by side: neither needs the other. */
  async #startOutside(request: PrepareRequest, modelToken: string): Promise<SandboxNetwork> {
    const [folders, network] = await Promise.allSettled([
      makeFolders(this.#disk, request),
      this.#startNetwork(request, modelToken),
    ])
    if (folders.status === 'rejected') {
      if (network.status === 'fulfilled') await network.value.close()
      throw asStartFailure(folders.reason, request)
    }
    if (network.status === 'rejected') {
      this.#disk.release(request.dirs)
      throw asStartFailure(network.reason, request)
    }
    return network.value
  }

  #startNetwork(request: PrepareRequest, modelToken: string): Promise<SandboxNetwork> {
    return SandboxNetwork.start({
      runDir: request.dirs.run,
      owner: request.owner,
      modelToken,
      upstream: this.#options.upstream,
      modelIdleTimeoutMs: this.#options.modelIdleTimeoutMs,
      budget: request.budget,
      policy: request.network,
      onDenied: request.onDenied ?? (() => {}),
      findCredential: request.findCredential,
      closedPorts: this.#options.closedPorts,
    })
  }

  #startProcess(
    { sandboxId, dirs, agentDir, owner, limits }: PrepareRequest,
    { modelSocket, egressSocket, tunnelSocket }: SandboxNetwork,
  ): Promise<SandboxProcess> {
    return this.provider.start({
      id: sandboxId,
      runtime: this.#options.runtime,
      agentDir,
      workspaceDir: dirs.workspace,
      homeDir: dirs.home,
      modelSocket,
      egressSocket,
      tunnelSocket,
      owner,
      limits,
      env: this.#options.env,
    })
  }
}

const preloadCommand = (preload: NonNullable<PrepareRequest['preload']>) =>
  preload === 'agent' ? { cmd: 'preload' as const } : { cmd: 'preload' as const, interpreter: preload }

function preparedSandbox(sandbox: Sandbox, modelToken: string): PreparedSandbox {
  const { id, bridge, exited, setNetwork, stop } = sandbox
  return {
    id,
    exited,
    setNetwork,
    stop,
    async configure(setup) {
      try {
        await inTime(bridge.call({ cmd: 'configure', session: { ...setup, modelToken } }))
        return sandbox
      } catch (error) {
        await stop()
        throw error
      }
    },
  }
}

function liveSandbox(
  request: PrepareRequest,
  process: SandboxProcess,
  bridge: BridgeClient,
  network: SandboxNetwork,
  disk: DiskBackend,
): Sandbox {
  const { dirs, limits, onLimit } = request
  let diskState: DiskState = 'ok'
  const counters = {
    hits: () => process.hits(),
    outputExcesses: () => bridge.outputExcesses,
    diskState: async () => {
      diskState = await disk.stateOf(dirs, limits.diskMb)
      return diskState
    },
  }
  const watch = new LimitWatch(counters, limits, (hit) => {
    onLimit?.(hit)
    if (hit.code === 'disk_full' && diskState === 'exceeded') bridge.close(tooMuchOnDisk(limits))
  })
  const stop = async () => {
    watch.stop()
    bridge.close(new AshError('sandbox_died', 'The sandbox was stopped'))
    await process.kill()
    await network.close()
    disk.release(dirs)
  }
  let enclosures = 0
  let isFrozen = false
  let isFreezing = false
  const thaw = () => {
    isFreezing = false
    isFrozen = false
    process.thaw()
    bridge.letGo()
  }
  let stopping: Promise<void> | undefined
  const stopOnce = () => {
    stopping ??= stop()
    return stopping
  }
  // Broken protocol, silence or death: a sandbox without its bridge is of no use to anybody.
  bridge.closed.then(stopOnce).catch(() => {}) // Told to whoever stops it.
  return {
    id: request.sandboxId,
    bridge,
    exited: process.exited,
    hasJustKilled: () => watch.hasJustKilled(),
    setNetwork: (policy) => network.setPolicy(policy),
    traffic: () => network.traffic(),
    openTunnel: (port) => network.openTunnel(port, (...tunnel) => askForTunnel(bridge, ...tunnel)),
    get isFrozen() {
      return isFrozen
    },
    async freeze() {
      isFreezing = true
      bridge.hold()
      const isStill = await process.freeze().catch((error: unknown) => {
        thaw()
        throw error
      })
      isFrozen = isStill && isFreezing
      if (isStill && !isFreezing) process.thaw() // Somebody has needed it meanwhile.
      if (!isFrozen) bridge.letGo()
      return isFrozen
    },
    thaw,
    usage: () => process.usage(),
    pids: () => process.pids(),
    enclose: async (insidePid) => {
      await process.settled
      return encloseInside(process, insidePid, `run-${++enclosures}`)
    },
    stop: stopOnce,
  }
}

async function askForTunnel(bridge: BridgeClient, port: number, token: string): Promise<boolean> {
  const answer = await bridge.call({ cmd: 'tunnel', port, token })
  return (answer as Partial<TunnelResult> | null)?.connected === true
}

function encloseInside(process: SandboxProcess, insidePid: number, name: string): Enclosure | undefined {
  const pids = process.pids()
  if (pids === undefined) return undefined
  const hostPid = findHostPid(pids, insidePid)
  try {
    if (hostPid !== undefined) return process.enclose(name, hostPid)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
  throw new AshError('interpreter_gone', `There is no process ${insidePid} in the sandbox`)
}

/** A sandbox whose bridge is gone is as good as dead; what killed it is known when it is. */
async function explainEnd(process: SandboxProcess, { limits }: PrepareRequest): Promise<AshError> {
  const exit = await Promise.race([process.exited, delay(EXIT_TIMEOUT_MS, undefined, { ref: false })])
  if (exit && exit.usage.oomKills > 0) {
    return new AshError(
      'oom_killed',
      `The sandbox used more than its ${limits.memoryMb} MB of memory and was killed`,
    )
  }
  return new AshError('sandbox_died', 'The sandbox ended unexpectedly')
}

/** A bridge that lives but never answers would hold its session for ever. */
async function inTime(work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(startFailure('the bridge did not answer')), READY_TIMEOUT_MS)
  })
  try {
    await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}

async function becomesReady(bridge: BridgeClient, process: SandboxProcess): Promise<void> {
  const timer = new AbortController()
  const late = new Promise<'late'>((resolve) => {
    const timeout = setTimeout(() => resolve('late'), READY_TIMEOUT_MS)
    timer.signal.addEventListener('abort', () => clearTimeout(timeout))
  })
  // A connection that breaks off because of a death waits for the death, which says more.
  const broken = bridge.closed.then<AshError | SandboxExit>((error) =>
    error.code === 'bridge_protocol_error' ? error : process.exited,
  )
  const outcome = await Promise.race([bridge.ready, process.exited, broken, late])
  timer.abort()
  if (outcome === undefined) return
  const reason =
    outcome === 'late'
      ? `the bridge was not ready within ${READY_TIMEOUT_MS / 1000} s`
      : outcome instanceof AshError
        ? outcome.message
        : `it exited with ${outcome.code ?? outcome.signal}: ${outcome.stderr.trim() || 'no message'}`
  throw startFailure(reason)
}

function tooMuchOnDisk({ diskMb }: ResourceLimits): AshError {
  return new AshError(
    'disk_full',
    `Workspace and home hold more than the ${diskMb} MB allowed, so the sandbox was stopped. Delete files, then go on.`,
  )
}
