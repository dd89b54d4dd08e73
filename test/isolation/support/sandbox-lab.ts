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
  /** Takes the bridge's place: what the server would face, had the bridge been taken over. */
  bridge?: string
  pulse?: { pingIntervalMs: number; pongTimeoutMs: number }
}

export interface LabRequest {
  limits?: Partial<ResourceLimits>
  network?: 'none' | 'open' | string[]
  /** Of the session. */
  env?: Record<string, string>
  onDenied?: SandboxRequest['onDenied']
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
  readonly #runtime: Runtime
  readonly #options: LabOptions
  readonly #live = new Set<Sandbox>()
  #count = 0

  private constructor(dir: string, limits: LimitBackend, runtime: Runtime, options: LabOptions) {
    this.dir = dir
    this.limits = limits
    this.#runtime = runtime
    this.#options = options
  }

  static async start(options: LabOptions = {}): Promise<SandboxLab> {
    const dir = await mkdtemp(join(tmpdir(), 'ash-lab-'))
    await chmod(dir, 0o711)
    await mkdir(join(dir, 'agent'), { mode: 0o755 })
    await writeFile(join(dir, 'agent', 'CLAUDE.md'), 'You are a test.\n')
    const source = workspaceRuntime()
    const bridge = options.bridge === undefined ? source.bridge : join(dir, 'bridge.mjs')
    if (options.bridge !== undefined) await writeFile(bridge, options.bridge)
    const runtime = await stageRuntime(join(dir, 'runtime'), { ...source, bridge })
    return new SandboxLab(dir, await chooseLimits(`ash-lab-${process.pid}`, true), runtime, options)
  }

  /** The process of the sandbox comes with the rejection, where it starts and then fails. */
  async startSandbox({ limits, network, env, onDenied }: LabRequest = {}): Promise<LabSandbox> {
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
    }
    return this.resume(request)
  }

  /** Starts a sandbox on the folders of one that was stopped. */
  async resume(request: SandboxRequest): Promise<LabSandbox> {
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
      runtime: this.#runtime,
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
