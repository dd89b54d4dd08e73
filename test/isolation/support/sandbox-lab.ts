import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  Budget,
  chooseLimits,
  createProvider,
  DEFAULT_LIMITS,
  type LimitBackend,
  loadPrices,
  type ModelUpstream,
  parsePolicy,
  type ResourceLimits,
  type Runtime,
  type RuntimeSource,
  type Sandbox,
  SandboxManager,
  type SandboxProcess,
  type SandboxRequest,
  sessionDirs,
  stageRuntime,
} from '@ash-ai/sandbox'
import { listTree, type ProcessInfo } from '@ash-ai/sandbox/testing'
import type { ExecResult } from '@ash-ai/shared'
import { nextOwner } from './provider-fixture.ts'
import { workspaceRuntime } from './runtime-source.ts'

export interface LabOptions {
  upstream?: ModelUpstream
  pulse?: { pingIntervalMs: number; pongTimeoutMs: number }
  /** Where programs are taken from; by default the workspace. */
  source?: RuntimeSource
}

export interface LabRequest {
  /** Takes the bridge's place: what the server would face, had the bridge been taken over. */
  bridge?: string
  limits?: Partial<ResourceLimits>
  network?: 'none' | 'open' | string[]
  /** Of the session. */
  env?: Record<string, string>
  onDenied?: SandboxRequest['onDenied']
  onLimit?: SandboxRequest['onLimit']
}

/** A sandbox with its host side in this very process, so that a test can look at both. */
export interface LabSandbox extends Sandbox {
  request: SandboxRequest
  process: SandboxProcess
  exec(command: string, timeoutMs?: number): Promise<ExecResult>
  /** As the host sees them: bwrap, the bridge and all below. */
  processes(): Promise<ProcessInfo[]>
}

/** Real sandboxes under the strongest limits of this machine. All are gone after `dispose`. */
export class SandboxLab {
  readonly dir: string
  readonly limits: LimitBackend
  readonly #options: LabOptions & { source: RuntimeSource }
  #runtime: Runtime | undefined
  readonly #live = new Set<Sandbox>()
  #count = 0

  private constructor(dir: string, limits: LimitBackend, options: LabOptions & { source: RuntimeSource }) {
    this.dir = dir
    this.limits = limits
    this.#options = options
  }

  static async start(options: LabOptions = {}): Promise<SandboxLab> {
    const dir = await mkdtemp(join(tmpdir(), 'ash-lab-'))
    await chmod(dir, 0o711)
    await mkdir(join(dir, 'agent'), { mode: 0o755 })
    await writeFile(join(dir, 'agent', 'CLAUDE.md'), 'You are a test.\n')
    const source = options.source ?? workspaceRuntime()
    const limits = await chooseLimits(`ash-lab-${process.pid}`, process.getuid?.() === 0)
    const lab = new SandboxLab(dir, limits, { ...options, source })
    lab.#runtime = await lab.#stage(source.bridge)
    return lab
  }

  /** The process of the sandbox comes with the rejection, where it starts and then fails. */
  async startSandbox(wanted: LabRequest = {}): Promise<LabSandbox> {
    const { bridge, limits, network, env, onDenied, onLimit } = wanted
    const sandboxId = `lab-${process.pid}-${this.#count++}`
    const request: SandboxRequest = {
      sandboxId,
      dirs: sessionDirs(this.dir, sandboxId),
      agentDir: join(this.dir, 'agent'),
      owner: nextOwner(),
      limits: { ...DEFAULT_LIMITS, ...limits },
      network: parsePolicy(network ?? 'none'),
      budget: new Budget(loadPrices()),
      setup: { sessionId: sandboxId, env: env ?? {} },
      ...(onDenied && { onDenied }),
      ...(onLimit && { onLimit }),
    }
    if (bridge === undefined) return this.resume(request)
    const file = join(this.dir, `${sandboxId}.mjs`)
    await writeFile(file, bridge)
    return this.resume(request, await this.#stage(file))
  }

  #stage(bridge: string): Promise<Runtime> {
    return stageRuntime(join(this.dir, 'runtime'), { ...this.#options.source, bridge })
  }

  /** Starts a sandbox on the folders of one that was stopped. */
  async resume(request: SandboxRequest, runtime = this.#runtime): Promise<LabSandbox> {
    if (!runtime) throw new Error('no runtime')
    let started: SandboxProcess | undefined
    const provider = createProvider('bwrap', this.limits)
    const manager = new SandboxManager({
      provider: {
        ...provider,
        async start(spec) {
          started = await provider.start(spec)
          return started
        },
      },
      runtime,
      upstream: this.#options.upstream ?? { baseUrl: 'http://127.0.0.1:9', apiKey: 'sk-the-real-key' },
      modelIdleTimeoutMs: 10_000,
      env: {},
      ...(this.#options.pulse && { pulse: this.#options.pulse }),
    })
    const sandbox = await manager.start(request)
    this.#live.add(sandbox)
    if (!started) throw new Error('no process')
    const { pid } = started
    return {
      ...sandbox,
      request,
      process: started,
      processes: () => listTree(pid),
      exec: async (command, timeoutMs = 20_000) =>
        (await sandbox.bridge.call({ cmd: 'exec', command, timeoutMs })) as ExecResult,
    }
  }

  async dispose(): Promise<void> {
    await Promise.all([...this.#live].map((sandbox) => sandbox.stop()))
    await this.limits.close()
    await rm(this.dir, { recursive: true, force: true })
  }
}
