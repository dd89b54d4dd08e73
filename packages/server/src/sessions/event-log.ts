import { type EventType, formatSSE } from '@ash-ai/shared'
import type { Db } from '../db/open-db.ts'
import { type Entry, findLastSeq, insertEvents, listEvents } from './event-queries.ts'
import type { Fence } from './session-queries.ts'

const RING_MAX_CHARS = 1024 * 1024
const PENDING_MAX_CHARS = 4 * 1024 * 1024
/** Rows of one insert: SQLite allows 32,766 parameters, and a row has eleven. */
const BATCH_MAX_ENTRIES = 500
const PAGE_ENTRIES = 200

/** Place in a log: after entry `seq`, and after preview `sub` that followed it. */
export interface Cursor {
  seq: number
  sub: number
}

/** One SSE frame: a committed entry (`sub` 0) or a preview, which is never stored. */
export interface Frame extends Cursor {
  type: EventType
  turnId: string | null
  text: string
}

interface Pending {
  type: EventType
  turnId: string | null
  data: string
  isPreview: boolean
  /** Hears the `seq` of the entry when it is durable, or why it is not. */
  settle?: { resolve: (seq: number) => void; reject: (error: Error) => void }
}

/**
 * The log of one session. Entries get their `seq` and are committed in small batches; a frame can be read only
 * after its commit, so an id that a client has seen never means something else. Readers are cursors: the last
 * part is in memory, older entries come from the database, and a slow reader costs nothing.
 */
export class EventLog {
  readonly #db: Db
  readonly #fence: Fence
  #lastSeq: number
  #lastSub = 0
  #pending: Pending[] = []
  #pendingChars = 0
  #flushing: Promise<void> | undefined
  #scheduled: NodeJS.Immediate | undefined
  #failure: Error | undefined
  #ring: Frame[] = []
  #ringChars = 0
  /** Entries up to here are no longer in the ring. */
  #ringFloor: number
  #waiting = new Set<() => void>()

  constructor(db: Db, fence: Fence, lastSeq: number) {
    this.#db = db
    this.#fence = fence
    this.#lastSeq = lastSeq
    this.#ringFloor = lastSeq
  }

  get lastSeq(): number {
    return this.#lastSeq
  }

  /** A log whose write failed takes no more entries: what is stored can then be read with a new one. */
  get hasFailed(): boolean {
    return this.#failure !== undefined
  }

  /** Queues an entry. Resolves at once while the writer keeps up, later when it has caught up. */
  async write(type: EventType, turnId: string | null, data: string): Promise<void> {
    this.#enqueue({ type, turnId, data, isPreview: false })
    if (this.#pendingChars > PENDING_MAX_CHARS) await this.flushed()
  }

  /** Queues an entry and resolves, with its `seq`, when it is durable. */
  append(type: EventType, turnId: string | null, data: string): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#enqueue({ type, turnId, data, isPreview: false, settle: { resolve, reject } })
    })
  }

  /** Shows a partial message to whoever reads along; it takes no `seq` and is not stored. */
  preview(turnId: string | null, data: string): void {
    this.#enqueue({ type: 'message', turnId, data, isPreview: true })
  }

  /** Resolves when everything queued is durable. */
  async flushed(): Promise<void> {
    if (this.#pending.length > 0) this.#startFlush()
    while (this.#flushing !== undefined) await this.#flushing
    if (this.#failure) throw this.#failure
  }

  /** Frames after the cursor, in the batches in which they become readable, until the signal says stop. */
  async *read(cursor: Cursor, signal: AbortSignal): AsyncGenerator<Frame[]> {
    let { seq, sub } = cursor
    while (!signal.aborted) {
      const frames = seq < this.#ringFloor ? await this.#readStored(seq) : this.#readRing(seq, sub)
      const last = frames.at(-1)
      if (last) {
        seq = last.seq
        sub = last.sub
        yield frames
      } else {
        await this.#changed(signal)
      }
    }
  }

  /** An entry that somebody waits for is committed at once, with all that is queued; others wait for company. */
  #enqueue(item: Pending): void {
    if (this.#failure) throw this.#failure
    this.#pending.push(item)
    this.#pendingChars += item.data.length
    if (this.#flushing !== undefined) return
    if (item.settle) this.#startFlush()
    // What arrived together is committed together: the rest of the bridge's chunk is queued before the next phase.
    else this.#scheduled ??= setImmediate(() => this.#startFlush())
  }

  #startFlush(): void {
    clearImmediate(this.#scheduled)
    this.#scheduled = undefined
    this.#flushing ??= this.#flush()
  }

  async #flush(): Promise<void> {
    while (this.#pending.length > 0) {
      const batch = this.#pending.splice(0, BATCH_MAX_ENTRIES)
      try {
        await this.#commit(batch)
      } catch (error) {
        this.#fail(error instanceof Error ? error : new Error(String(error)), batch)
      }
      this.#wake()
    }
    this.#flushing = undefined
  }

  #fail(error: Error, batch: Pending[]): void {
    this.#failure = error
    for (const { settle } of batch.concat(this.#pending)) settle?.reject(error)
    this.#pending = []
  }

  async #commit(batch: Pending[]): Promise<void> {
    const createdAt = Date.now()
    let seq = this.#lastSeq
    const entries: Entry[] = []
    for (const { type, turnId, data, isPreview } of batch) {
      if (!isPreview) entries.push({ seq: ++seq, type, turnId, data, createdAt })
    }
    if (entries.length > 0) await insertEvents(this.#db, this.#fence, entries)
    for (const item of batch) this.#publish(item)
  }

  #publish({ type, turnId, data, isPreview, settle }: Pending): void {
    this.#lastSub = isPreview ? this.#lastSub + 1 : 0
    if (!isPreview) this.#lastSeq++
    this.#pendingChars -= data.length
    const frame = toFrame({ seq: this.#lastSeq, type, turnId, data }, this.#lastSub)
    this.#ring.push(frame)
    this.#ringChars += frame.text.length
    while (this.#ringChars > RING_MAX_CHARS && this.#ring.length > 1) this.#forgetOldest()
    settle?.resolve(this.#lastSeq)
  }

  #forgetOldest(): void {
    const oldest = this.#ring.shift()
    if (!oldest) return
    this.#ringChars -= oldest.text.length
    this.#ringFloor = oldest.seq
  }

  /** Searched from the end, where readers that keep up are. */
  #readRing(seq: number, sub: number): Frame[] {
    const last = this.#ring.findLastIndex(
      (frame) => frame.seq < seq || (frame.seq === seq && frame.sub <= sub),
    )
    return this.#ring.slice(last + 1)
  }

  async #readStored(after: number): Promise<Frame[]> {
    const { tenantId, sessionId } = this.#fence
    const entries = await listEvents(this.#db, tenantId, sessionId, { after, limit: PAGE_ENTRIES })
    return entries.map((entry) => toFrame(entry, 0))
  }

  #changed(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        this.#waiting.delete(wake)
        signal.removeEventListener('abort', wake)
        resolve()
      }
      this.#waiting.add(wake)
      signal.addEventListener('abort', wake)
      if (signal.aborted) wake()
    })
  }

  #wake(): void {
    for (const wake of [...this.#waiting]) wake()
  }
}

function toFrame({ seq, type, turnId, data }: Omit<Entry, 'createdAt'>, sub: number): Frame {
  const id = sub === 0 ? String(seq) : `${seq}.${sub}`
  return { seq, sub, type, turnId, text: formatSSE({ id, event: type, data }) }
}

/** The logs in use, one object each: whoever reads a session's log sees what its turns write. */
export class EventLogs {
  readonly #db: Db
  /** Readers and the live session keep a log alive; it needs no other owner. */
  readonly #open = new Map<string, WeakRef<EventLog>>()
  readonly #opening = new Map<string, Promise<EventLog>>()
  readonly #forget = new FinalizationRegistry<string>((sessionId) => {
    if (this.#open.get(sessionId)?.deref() === undefined) this.#open.delete(sessionId)
  })

  constructor(db: Db) {
    this.#db = db
  }

  async get(fence: Fence): Promise<EventLog> {
    const { sessionId } = fence
    const log = this.#open.get(sessionId)?.deref()
    if (log && !log.hasFailed) return log
    const opening = this.#opening.get(sessionId) ?? this.#load(fence)
    this.#opening.set(sessionId, opening)
    return opening
  }

  async #load(fence: Fence): Promise<EventLog> {
    try {
      const log = new EventLog(this.#db, fence, await findLastSeq(this.#db, fence.tenantId, fence.sessionId))
      this.#open.set(fence.sessionId, new WeakRef(log))
      this.#forget.register(log, fence.sessionId)
      return log
    } finally {
      this.#opening.delete(fence.sessionId)
    }
  }
}
