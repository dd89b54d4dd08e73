import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { rm } from 'node:fs/promises'
import type { Owner, SandboxExit } from '@ash-ai/sandbox'
import { listTree, type ProcessInfo } from '@ash-ai/sandbox/testing'
import type { ExecResult } from '@ash-ai/shared'
import { type DelegatedGroups, delegateGroups } from './delegated-groups.ts'
import type { Heard, LabOrder, SetupReply, StartReply, TurnReply, WantedSandbox } from './lab-process.ts'
import { Orders } from './orders.ts'
import { placeFiles } from './place-files.ts'
import type { LabOptions } from './sandbox-lab.ts'
import type { ServerKind } from './server-kinds.ts'

const EXEC_TIMEOUT_MS = 20_000

/** A sandbox of a lab that runs in another process. */
export interface HostedSandbox extends StartReply {
  exec(command: string, timeoutMs?: number): Promise<ExecResult>
  /** One turn, where a bridge that was taken over runs it. */
  turn(): Promise<TurnReply>
  usage(): Promise<SandboxExit['usage']>
  heard(): Promise<Heard>
  /** The code with which the connection ended, when nothing of the sandbox is left. */
  ended(): Promise<string>
  /** As the host sees them: bwrap, the bridge and all below. */
  processes(): Promise<ProcessInfo[]>
  stop(): Promise<void>
}

/** A lab whose host side is a process of its own, run as any user. All of it is gone after `dispose`. */
export class LabHost {
  readonly pid: number
  readonly limits: SetupReply
  readonly #dir: string
  readonly #child: ChildProcess
  readonly #orders: Orders<LabOrder>
  readonly #groups: DelegatedGroups | undefined

  private constructor(
    dir: string,
    child: ChildProcess,
    orders: Orders<LabOrder>,
    limits: SetupReply,
    groups: DelegatedGroups | undefined,
  ) {
    this.pid = child.pid ?? 0
    this.limits = limits
    this.#dir = dir
    this.#child = child
    this.#orders = orders
    this.#groups = groups
  }

  static async start(kind: ServerKind, options: LabOptions = {}): Promise<LabHost> {
    const user: Owner | undefined = kind.user()
    const { dir, source, server } = await placeFiles('./lab-process.ts', user)
    const child = spawn(source.node, [server], {
      env: {},
      cwd: '/',
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      ...user,
    })
    await once(child, 'spawn')
    const groups = kind.hasDelegatedGroups && user ? await delegateGroups(user, child.pid ?? 0) : undefined
    const orders = new Orders<LabOrder>(child)
    const limits = (await orders.send({ op: 'setup', options: { ...options, source } })) as SetupReply
    return new LabHost(dir, child, orders, limits, groups)
  }

  async startSandbox(wanted: WantedSandbox = {}): Promise<HostedSandbox> {
    return this.#hosted((await this.#orders.send({ op: 'start', wanted })) as StartReply)
  }

  /** Starts a sandbox that was stopped once more, on the same folders. */
  async resume({ name }: HostedSandbox, env: Record<string, string>): Promise<HostedSandbox> {
    return this.#hosted((await this.#orders.send({ op: 'resume', name, env })) as StartReply)
  }

  /** Of the host side. */
  async residentBytes(): Promise<number> {
    return (await this.#orders.send({ op: 'rss' })) as number
  }

  async dispose(): Promise<void> {
    if (this.#child.signalCode !== null) return
    await this.#orders.send({ op: 'dispose' })
    const exited = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await exited
    await this.#groups?.remove()
    await rm(this.#dir, { recursive: true, force: true })
  }

  #hosted(started: StartReply): HostedSandbox {
    const { name, pid } = started
    const ask = (op: 'turn' | 'usage' | 'heard' | 'ended' | 'stop') => this.#orders.send({ op, name })
    return {
      ...started,
      exec: async (command, timeoutMs = EXEC_TIMEOUT_MS) =>
        (await this.#orders.send({ op: 'exec', name, command, timeoutMs })) as ExecResult,
      turn: async () => (await ask('turn')) as TurnReply,
      usage: async () => (await ask('usage')) as SandboxExit['usage'],
      heard: async () => (await ask('heard')) as Heard,
      ended: async () => (await ask('ended')) as string,
      processes: () => listTree(pid),
      stop: async () => {
        await ask('stop')
      },
    }
  }
}
