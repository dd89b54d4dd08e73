import type { SandboxState } from '@ash-ai/shared'

const FLUSH_MS = 1_000

/** A live sandbox as it is stored. */
export interface SandboxRow {
  id: string
  tenantId: string
  /** Null for a warm spare. */
  sessionId: string | null
  template: string
  /** Null where there is no agent. */
  agentName: string | null
  agentVersion: number | null
  state: SandboxState
  createdAt: number
  lastUsedAt: number
}

export type SandboxChange = Pick<SandboxRow, 'id' | 'state' | 'lastUsedAt'>

/** Where a pool stores which sandboxes live. Whoever implements it tells of failures; the pool tries again. */
export interface SandboxStore {
  /** Inserts the row, or replaces the one with its id. */
  put(row: SandboxRow): Promise<void>
  remove(id: string): Promise<void>
  setStates(changes: SandboxChange[]): Promise<void>
}

/**
 * Stores behind the back of whoever uses a sandbox. What comes to be, changes hands or goes is stored at once; what
 * each turn changes is stored once a second, all together. The newest of what waits wins, so that it stays small.
 */
export class SandboxRecord {
  readonly #store: SandboxStore
  /** Undefined: the sandbox is gone. */
  readonly #rows = new Map<string, SandboxRow | undefined>()
  readonly #changed = new Set<SandboxRow>()
  #writing: Promise<void> = Promise.resolve()
  #timer: NodeJS.Timeout | undefined

  constructor(store: SandboxStore) {
    this.#store = store
  }

  put(row: SandboxRow): void {
    this.#rows.set(row.id, row)
    void this.#write(false)
  }

  remove(row: SandboxRow): void {
    this.#changed.delete(row)
    this.#rows.set(row.id, undefined)
    void this.#write(false)
  }

  /** State or last use is another; soon enough is enough. */
  note(row: SandboxRow): void {
    this.#changed.add(row)
    this.#flushLater()
  }

  /** Resolves when everything noted so far is stored, or has failed once more. */
  flush(): Promise<void> {
    return this.#write(true)
  }

  #flushLater(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      void this.flush()
    }, FLUSH_MS).unref()
  }

  /** One write after the other: what is gone must not come back. */
  #write(withChanges: boolean): Promise<void> {
    this.#writing = this.#writing.then(async () => {
      try {
        await this.#writeRows()
        if (withChanges) await this.#writeChanges()
      } catch {
        this.#flushLater()
      }
    })
    return this.#writing
  }

  async #writeRows(): Promise<void> {
    for (const [id, row] of this.#rows) {
      this.#rows.delete(id)
      await (row ? this.#store.put({ ...row }) : this.#store.remove(id)).catch((error: unknown) => {
        if (!this.#rows.has(id)) this.#rows.set(id, row)
        throw error
      })
    }
  }

  async #writeChanges(): Promise<void> {
    const changed = [...this.#changed]
    if (changed.length === 0) return
    this.#changed.clear()
    const changes = changed.map(({ id, state, lastUsedAt }) => ({ id, state, lastUsedAt }))
    await this.#store.setStates(changes).catch((error: unknown) => {
      for (const row of changed) this.#changed.add(row)
      throw error
    })
  }
}
