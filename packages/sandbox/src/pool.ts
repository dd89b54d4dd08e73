import { AshError, type SandboxState } from '@ash-ai/shared'
import type { DirectInterpreter } from './interpreters/direct-interpreter.ts'
import type { InterpreterRequest } from './interpreters/start-interpreter.ts'
import type { PreparedSandbox, PrepareRequest, Sandbox, SandboxManager, SandboxRequest } from './manager.ts'
import { SandboxRecord, type SandboxRow, type SandboxStore } from './sandbox-store.ts'

const RETRY_AFTER_SECONDS = 5
/** Saving the files of a session takes as long as there is to save; who waits for the slot tries another then. */
const EVICT_TIMEOUT_MS = 60_000

/** Whose sandbox it is; without a session it is a spare. */
interface PoolTenant {
  tenantId: string
  sessionId: string | null
  template: string
  /** Null where there is no agent. */
  agentName: string | null
  agentVersion: number | null
}

export interface PoolUse extends PoolTenant {
  /** Asked when the slot is needed: checkpoint and stop it. False where it has become busy meanwhile. */
  evict: () => Promise<boolean>
}

type LiveState = Exclude<SandboxState, 'cold'>

/** A slot that is taken. */
interface Entry {
  readonly id: string
  state: LiveState
  /** Undefined for work that is nobody's session: it is never evicted, and not stored. */
  use: PoolUse | undefined
  row: SandboxRow | undefined
  /** Grows with every use of any sandbox: the smallest was used longest ago. */
  lastUse: number
  started: Promise<{ stop(): Promise<void> }> | undefined
  isEvicting: boolean
  /** Takes the slot over at the moment it becomes free. */
  heir: (() => void) | undefined
}

/**
 * Bounds how many sandboxes live at once. A slot is taken before a start begins and given back when all of the
 * sandbox is gone. Where none is free, whoever was used longest ago of those that wait makes room; work never does.
 */
export class SandboxPool {
  readonly max: number
  readonly #manager: SandboxManager
  readonly #record: SandboxRecord | undefined
  readonly #entries = new Map<string, Entry>()
  #uses = 0
  #isStopping = false

  constructor(manager: SandboxManager, max: number, store?: SandboxStore) {
    this.#manager = manager
    this.max = max
    this.#record = store && new SandboxRecord(store)
  }

  get live(): number {
    return this.#entries.size
  }

  counts(): Record<LiveState, number> {
    const counts = { warming: 0, warm: 0, waiting: 0, running: 0 }
    for (const { state } of this.#entries.values()) counts[state]++
    return counts
  }

  /** Throws `pool_full` where no slot is free and none can become so. Somebody else may still be quicker. */
  assertRoom(): void {
    if (this.#entries.size >= this.max && !this.#nextVictim(new Set())) throw this.#full()
  }

  /** Starts a sandbox, in the place of another where it must. Without a use it runs until it ends. */
  async acquire(request: SandboxRequest, use?: PoolUse): Promise<Sandbox> {
    const entry = this.#newEntry(request.sandboxId, use)
    if (!this.#tryAdd(entry)) await this.#evictFor(entry)
    return this.#start(entry, () => this.#manager.start(request), use ? 'waiting' : 'running')
  }

  /** Starts a spare, only where a slot is free. */
  async prepare(request: PrepareRequest, use: PoolUse): Promise<PreparedSandbox> {
    const entry = this.#newEntry(request.sandboxId, use)
    if (!this.#tryAdd(entry)) throw this.#full()
    return this.#start(entry, () => this.#manager.prepare(request), 'warm')
  }

  /** Starts an interpreter in a slot of its own, in the place of another where it must. It runs until it ends. */
  async acquireInterpreter(request: InterpreterRequest, use?: PoolUse): Promise<DirectInterpreter> {
    const entry = this.#newEntry(request.sandboxId, use)
    if (!this.#tryAdd(entry)) await this.#evictFor(entry)
    return this.#start(entry, () => this.#manager.startInterpreter(request), 'running')
  }

  /** Starts a spare interpreter, only where a slot is free. */
  async prepareInterpreter(request: InterpreterRequest, use: PoolUse): Promise<DirectInterpreter> {
    const entry = this.#newEntry(request.sandboxId, use)
    if (!this.#tryAdd(entry)) throw this.#full()
    return this.#start(entry, () => this.#manager.startInterpreter(request), 'warm')
  }

  /** A spare becomes a session's; an interpreter, which runs at once, with `running`. */
  claim(sandboxId: string, use: PoolUse, state: 'waiting' | 'running' = 'waiting'): void {
    const entry = this.#entries.get(sandboxId)
    if (entry?.state !== 'warm') throw new AshError('sandbox_died', 'The sandbox ended before it was used')
    entry.use = use
    if (entry.row) Object.assign(entry.row, tenantOf(use))
    this.#enter(entry, state)
  }

  setState(sandboxId: string, state: 'waiting' | 'running'): void {
    const entry = this.#entries.get(sandboxId)
    if (entry) this.#changeSoon(entry, state) // Otherwise it has just ended, which its session hears.
  }

  /** It was used just now. */
  touch(sandboxId: string): void {
    const entry = this.#entries.get(sandboxId)
    if (entry) this.#changeSoon(entry, entry.state)
  }

  stateOf(sandboxId: string): SandboxState | undefined {
    return this.#entries.get(sandboxId)?.state
  }

  /** Stops every sandbox, also those that are only starting. None is started any more. */
  async stopAll(): Promise<void> {
    this.#isStopping = true
    const stops = [...this.#entries.values()].map(async ({ started }) => (await started)?.stop())
    await Promise.allSettled(stops)
    await this.#record?.flush()
  }

  #newEntry(id: string, use: PoolUse | undefined): Entry {
    const now = Date.now()
    return {
      id,
      state: 'warming',
      use,
      row: use && { id, ...tenantOf(use), state: 'warming', createdAt: now, lastUsedAt: now },
      lastUse: 0,
      started: undefined,
      isEvicting: false,
      heir: undefined,
    }
  }

  #tryAdd(entry: Entry): boolean {
    if (this.#isStopping) throw stopping()
    if (this.#entries.has(entry.id)) throw new Error(`sandbox ${entry.id} is in the pool already`)
    if (this.#entries.size >= this.max) return false
    this.#entries.set(entry.id, entry)
    this.#enter(entry, 'warming')
    return true
  }

  async #start<Started extends { exited: Promise<unknown>; stop(): Promise<void> }>(
    entry: Entry,
    start: () => Promise<Started>,
    state: LiveState,
  ): Promise<Started> {
    try {
      if (this.#isStopping) throw stopping()
      const started = start()
      entry.started = started
      const sandbox = await started
      void sandbox.exited.then(() => this.#remove(entry))
      this.#enter(entry, state)
      return sandbox
    } catch (error) {
      this.#remove(entry)
      throw error
    }
  }

  /** What is stored at once. */
  #enter(entry: Entry, state: LiveState): void {
    this.#change(entry, state)
    if (entry.row) this.#record?.put(entry.row)
  }

  /** What is stored with the next of all such changes. */
  #changeSoon(entry: Entry, state: LiveState): void {
    this.#change(entry, state)
    if (entry.row) this.#record?.note(entry.row)
  }

  #change(entry: Entry, state: LiveState): void {
    entry.state = state
    entry.lastUse = ++this.#uses
    if (entry.row) Object.assign(entry.row, { state, lastUsedAt: Date.now() })
  }

  #remove(entry: Entry): void {
    if (!this.#entries.delete(entry.id)) return
    if (entry.row) this.#record?.remove(entry.row)
    entry.heir?.()
  }

  /** Resolves when the entry has a slot: a free one, or that of another which it evicted. */
  async #evictFor(entry: Entry): Promise<void> {
    const asked = new Set<Entry>()
    do {
      const victim = this.#nextVictim(asked)
      if (!victim) throw this.#full()
      asked.add(victim)
      if (await this.#takeOver(victim, entry)) return
    } while (!this.#tryAdd(entry))
  }

  /** Least recently used first; spares only when no session waits. */
  #nextVictim(asked: Set<Entry>): Entry | undefined {
    const willing = [...this.#entries.values()].filter(({ use, isEvicting }) => use && !isEvicting)
    const oldest = (state: LiveState) =>
      willing
        .filter((entry) => entry.state === state && !asked.has(entry))
        .reduce<Entry | undefined>((a, b) => (a && a.lastUse < b.lastUse ? a : b), undefined)
    return oldest('waiting') ?? oldest('warm')
  }

  /** False where the victim stays. The slot is never free in between: nobody else can have it. */
  async #takeOver(victim: Entry, entry: Entry): Promise<boolean> {
    const taken = Promise.withResolvers<void>()
    victim.heir = () => {
      try {
        if (!this.#isStopping) this.#tryAdd(entry)
      } finally {
        taken.resolve()
      }
    }
    const late = Promise.withResolvers<void>()
    const timer = setTimeout(late.resolve, EVICT_TIMEOUT_MS)
    const evicted = this.#evict(victim).then((isGoing) => (isGoing ? taken.promise : undefined))
    await Promise.race([taken.promise, evicted, late.promise])
    clearTimeout(timer)
    victim.heir = undefined
    return this.#entries.get(entry.id) === entry
  }

  /** Called before anything is awaited, so that nobody else asks the same one. */
  async #evict(victim: Entry): Promise<boolean> {
    victim.isEvicting = true
    try {
      if (await victim.use?.evict()) {
        const sandbox = await victim.started
        await sandbox?.stop()
        return true
      }
    } catch {
      // Whoever evicts tells of its failure; the sandbox stays where it is.
    }
    victim.isEvicting = false
    return false
  }

  #full(): AshError {
    return new AshError(
      'pool_full',
      `All ${this.max} sandboxes are in use. End a session or raise ASH_MAX_SANDBOXES.`,
      { retryAfterSeconds: RETRY_AFTER_SECONDS },
    )
  }
}

const stopping = () => new AshError('server_stopping', 'The server is shutting down')

const tenantOf = ({ tenantId, sessionId, template, agentName, agentVersion }: PoolTenant): PoolTenant => ({
  tenantId,
  sessionId,
  template,
  agentName,
  agentVersion,
})
