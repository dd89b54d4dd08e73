import { randomBytes } from 'node:crypto'
import { chmod, mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { AshError, type SessionSetup } from '@ash-ai/shared'
import { BridgeClient } from './bridge-client.ts'
import type { ResourceLimits } from './limits/resource-limits.ts'
import { type LimitHit, LimitWatch } from './limits/watch-limits.ts'
import { type ModelProxy, type ModelUpstream, startModelProxy } from './network/model-proxy.ts'
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
    let proxy: ModelProxy | undefined
    let process: SandboxProcess | undefined
    try {
      await createSessionDirs(request.dirs, request.agentDir, request.owner)
      proxy = await this.#startProxy(request, modelToken)
      const started = await this.#startProcess(request)
      process = started
      const bridge = new BridgeClient(started.stream, () => explainEnd(started, request))
      await becomesReady(bridge, started)
      await bridge.call({ cmd: 'configure', session: { ...request.setup, modelToken } })
      return liveSandbox(request, started, bridge, proxy)
    } catch (error) {
      await process?.kill()
      await closeProxy(proxy, request)
      throw asStartFailure(error)
    }
  }

  async #startProxy({ dirs, owner }: SandboxRequest, token: string): Promise<ModelProxy> {
    await mkdir(dirs.run, { recursive: true })
    await chmod(dirs.run, 0o711)
    return startModelProxy({
      socketPath: modelSocket(dirs),
      owner,
      token,
      upstream: this.#options.upstream,
      idleTimeoutMs: this.#options.modelIdleTimeoutMs,
    })
  }

  #startProcess({ sandboxId, dirs, agentDir, owner, limits }: SandboxRequest): Promise<SandboxProcess> {
    return this.provider.start({
      id: sandboxId,
      runtime: this.#options.runtime,
      agentDir,
      workspaceDir: dirs.workspace,
      homeDir: dirs.home,
      modelSocket: modelSocket(dirs),
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
  proxy: ModelProxy,
): Sandbox {
  const watch = new LimitWatch(process, request.limits, request.onLimit)
  const stop = async () => {
    watch.stop()
    bridge.close(new AshError('sandbox_died', 'The sandbox was stopped'))
    await process.kill()
    await closeProxy(proxy, request)
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

async function closeProxy(proxy: ModelProxy | undefined, { dirs }: SandboxRequest): Promise<void> {
  await proxy?.close()
  await rm(dirs.run, { recursive: true, force: true })
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

const modelSocket = (dirs: SessionDirs) => join(dirs.run, 'model.sock')
