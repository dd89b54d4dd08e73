import { type EventType, formatSSE } from '@ash-ai/shared'
import type { Db } from '../db/open-db.ts'
import { type Entry, findLogEnd, insertEvents, type LogEnd } from './event-queries.ts'
import { findLineage, listLogEvents, type Segment } from './session-lineage.ts'
import type { Fence } from './session-queries.ts'

const RING_MAX_CHARS = 1024 * 1024
const RING_KEPT_CHARS = RING_MAX_CHARS / 2
const PENDING_MAX_CHARS = 4 * 1024 * 1024
/** Entries of one insert. Larger batches are powers of two, so that there are few statements to prepare. */
const SMALL_BATCH_ENTRIES = 16
const BATCH_MAX_ENTRIES = 256
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
  readonly #forkSeq: number
  /** Where older entries are; known once they are asked for. */
  #lineage: Segment[] | undefined
  /** What is durable. */
  #end: LogEnd
  /** What can be read: entries of a batch become readable one after another. */
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
  #readers = 0

  constructor(db: Db, fence: Fence, { seq, totalChars, forkSeq }: LogEnd & { forkSeq: number }) {
    this.#db = db
    this.#fence = fence
    this.#forkSeq = forkSeq
    this.#end = { seq, totalChars }
    this.#lastSeq = seq
    this.#ringFloor = seq
  }

  /** How many read along at this moment. */
  get readers(): number {
    return this.#readers
  }

  /** Length of everything that the session wrote to its log; what a fork took over is stored elsewhere. */
  get totalChars(): number {
    return this.#end.totalChars + this.#pendingChars
  }

  get lastSeq(): number {
    return this.#lastSeq
  }

  /** A log whose write failed takes no more entries: what is stored can then be read with a new one. */
  get hasFailed(): boolean {
    return this.#failure !== undefined
  }

  /** Queues an entry. Where the writer does not keep up, the promise says when it has caught up. */
  write(type: EventType, turnId: string | null, data: string): Promise<void> | undefined {
    this.#enqueue({ type, turnId, data, isPreview: false })
    return this.#caughtUp()
  }

  /** Queues an entry and resolves, with its `seq`, when it is durable. */
  append(type: EventType, turnId: string | null, data: string): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#enqueue({ type, turnId, data, isPreview: false, settle: { resolve, reject } })
    })
  }

  /** Shows a partial message to whoever reads along; it takes no `seq` and is not stored. */
  preview(turnId: string | null, data: string): Promise<void> | undefined {
    this.#enqueue({ type: 'message', turnId, data, isPreview: true })
    return this.#caughtUp()
  }

  #caughtUp(): Promise<void> | undefined {
    return this.#pendingChars > PENDING_MAX_CHARS ? this.flushed() : undefined
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
    this.#readers++
    try {
      while (!signal.aborted) {
        const frames = seq < this.#ringFloor ? await this.#readStored(seq) : this.#readRing(seq, sub)
        const last = frames.at(-1)
        if (last) {
          seq = last.seq
          sub = last.sub
          yield frames
        } else {
          // Nothing follows in this object. Whoever comes back reads what is stored, with a new one.
          if (this.#failure) return
          await this.#changed(signal)
        }
      }
    } finally {
      this.#readers--
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
      const batch = this.#takeBatch()
      try {
        await this.#commit(batch)
      } catch (error) {
        this.#fail(error instanceof Error ? error : new Error(String(error)), batch)
      }
      this.#wake()
    }
    this.#flushing = undefined
  }

  #takeBatch(): Pending[] {
    const waiting = this.#pending.reduce((count, { isPreview }) => count + (isPreview ? 0 : 1), 0)
    const size = Math.min(BATCH_MAX_ENTRIES, 2 ** Math.floor(Math.log2(waiting)))
    if (waiting <= SMALL_BATCH_ENTRIES || waiting === size) return this.#pending.splice(0)
    let taken = 0
    const end = this.#pending.findIndex(({ isPreview }) => !isPreview && ++taken > size)
    return this.#pending.splice(0, end)
  }

  #fail(error: Error, batch: Pending[]): void {
    this.#failure = error
    for (const { settle } of batch.concat(this.#pending)) settle?.reject(error)
    this.#pending = []
  }

  async #commit(batch: Pending[]): Promise<void> {
    const entries = batch.filter(({ isPreview }) => !isPreview)
    if (entries.length > 0) {
      const added = { end: this.#end, createdAt: Date.now(), entries }
      this.#end = await insertEvents(this.#db, this.#fence, added)
    }
    for (const item of batch) this.#publish(item)
  }

  #publish({ type, turnId, data, isPreview, settle }: Pending): void {
    this.#lastSub = isPreview ? this.#lastSub + 1 : 0
    if (!isPreview) this.#lastSeq++
    this.#pendingChars -= data.length
    const frame = toFrame({ seq: this.#lastSeq, type, turnId, data }, this.#lastSub)
    this.#ring.push(frame)
    this.#ringChars += frame.text.length
    if (this.#ringChars > RING_MAX_CHARS) this.#forgetOldest()
    settle?.resolve(this.#lastSeq)
  }

  /** A good part at a time: moving the rest up for every single frame would cost more than the frame. */
  #forgetOldest(): void {
    let count = 0
    for (; this.#ringChars > RING_KEPT_CHARS && count < this.#ring.length - 1; count++) {
      this.#ringChars -= this.#ring[count]?.text.length ?? 0
    }
    const last = this.#ring.splice(0, count).at(-1)
    if (last) this.#ringFloor = last.seq
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
    this.#lineage ??= await findLineage(this.#db, { tenantId, sessionId, forkSeq: this.#forkSeq }, 0)
    const page = { after, limit: PAGE_ENTRIES }
    const entries = await listLogEvents(this.#db, tenantId, this.#lineage, page)
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

/** The entry's JSON text, out of its frame. */
export function dataOf({ text }: Frame): string {
  return text.slice(text.indexOf('\ndata: ') + '\ndata: '.length, -2)
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
      const log = new EventLog(this.#db, fence, await findLogEnd(this.#db, fence.tenantId, fence.sessionId))
      this.#open.set(fence.sessionId, new WeakRef(log))
      this.#forget.register(log, fence.sessionId)
      return log
    } finally {
      this.#opening.delete(fence.sessionId)
    }
  }
}
