import { setTimeout as sleep } from 'node:timers/promises'
import { AshError, ERRORS, type ErrorEventData, isAshError, type MessageSend } from '@ash-ai/shared'
import { findOpenTurn, findTurnStart } from './event-queries.ts'
import type { LiveSession } from './live-sessions.ts'
import type { SessionDeps } from './session-deps.ts'
import { type Fence, fenceOf, getSession } from './session-queries.ts'
import { useSession } from './session-wake.ts'
import { storeEventually } from './store-eventually.ts'
import {
  cancelWaiting,
  listWaitingRequests,
  markBegun,
  saveTurnRequest,
  type TurnRequestRow,
} from './turn-request-queries.ts'
import { TurnTiming } from './turn-timing.ts'
import { startTurn } from './turns.ts'

const MAX_WAITING = 32
const MAX_WAITING_CHARS = 32 * 1024 * 1024
/** Sessions whose queues are taken up at the same time after a start. */
const MAX_RESUMED_AT_ONCE = 4
const WAKE_RETRY_MS = [1_000, 2_000, 4_000]

export interface WaitingTurn {
  turnId: string
  position: number
  message: MessageSend
  /** Length of the message. */
  chars: number
  /** Settles when it is durable that the turn waits. */
  stored: Promise<void>
  begun: PromiseWithResolvers<number>
  isCancelled: boolean
  /** It is the session's turn now; an interrupt stops it as such. */
  isTaken: boolean
}

/** Messages that wait for the turn before them, by session and in order. The database has them too. */
export class WaitingTurns {
  readonly #bySession = new Map<string, WaitingTurn[]>()
  readonly #drains = new Map<string, Promise<void>>()

  has(sessionId: string): boolean {
    return this.#bySession.has(sessionId)
  }

  find(sessionId: string, turnId: string): WaitingTurn | undefined {
    return this.#bySession.get(sessionId)?.find((turn) => turn.turnId === turnId)
  }

  list(sessionId: string): readonly WaitingTurn[] {
    return this.#bySession.get(sessionId) ?? []
  }

  add(sessionId: string, turn: WaitingTurn): void {
    const turns = this.#bySession.get(sessionId) ?? []
    turns.push(turn)
    this.#bySession.set(sessionId, turns)
  }

  remove(sessionId: string, turn: WaitingTurn): void {
    const turns = this.#bySession.get(sessionId)?.filter((other) => other !== turn) ?? []
    if (turns.length > 0) this.#bySession.set(sessionId, turns)
    else this.#bySession.delete(sessionId)
  }

  /** Takes what waits in the session, one after another, until `take` says that it is enough. */
  drain(sessionId: string, take: (turn: WaitingTurn) => Promise<boolean>): Promise<void> {
    const draining = this.#drains.get(sessionId) ?? this.#drain(sessionId, take)
    if (this.has(sessionId)) this.#drains.set(sessionId, draining)
    return draining
  }

  async #drain(sessionId: string, take: (turn: WaitingTurn) => Promise<boolean>): Promise<void> {
    for (let [next] = this.list(sessionId); next; [next] = this.list(sessionId)) {
      if (!(await take(next))) break
      this.remove(sessionId, next)
    }
    this.#drains.delete(sessionId)
  }

  /** Resolves when no turn is being taken from a queue. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#drains.values())
  }
}

/** Lets a message wait for its turn; resolves when that is durable. */
export async function enqueueTurn(
  deps: SessionDeps,
  fence: Fence,
  message: MessageSend,
  row: TurnRequestRow,
): Promise<WaitingTurn> {
  const waiting = deps.waiting.list(fence.sessionId)
  const chars = waiting.reduce((sum, turn) => sum + turn.chars, row.message?.length ?? 0)
  if (waiting.length >= MAX_WAITING || (waiting.length > 0 && chars > MAX_WAITING_CHARS))
    throw new AshError(
      'queue_full',
      'Too many or too large messages are waiting already; send this one later',
    )
  // Before anything is awaited: the order of arrival is the order of the queue.
  const position = Math.max(Date.now(), (waiting.at(-1)?.position ?? 0) + 1)
  const stored = saveTurnRequest(deps.db, { ...row, position })
  const turn = newWaitingTurn({ ...row, position }, message, stored)
  deps.waiting.add(fence.sessionId, turn)
  try {
    await turn.stored
  } catch (error) {
    deps.waiting.remove(fence.sessionId, turn)
    throw error
  }
  void startDraining(deps, fence)
  return turn
}

function newWaitingTurn(
  { turn_id: turnId, position, message: text }: TurnRequestRow,
  message: MessageSend,
  stored: Promise<void>,
): WaitingTurn {
  const begun = Promise.withResolvers<number>()
  begun.promise.catch(() => {}) // Not everybody who sends also waits.
  const chars = text?.length ?? 0
  return { turnId, position, message, chars, stored, begun, isCancelled: false, isTaken: false }
}

/** Nothing that waits begins any more; each is told of in the log when its place is reached. Says which. */
export async function cancelWaitingTurns(deps: SessionDeps, fence: Fence): Promise<string[]> {
  const cancelled = deps.waiting.list(fence.sessionId).filter((turn) => !turn.isCancelled)
  const waiting = cancelled.filter((turn) => !turn.isTaken)
  for (const turn of cancelled) turn.isCancelled = true
  if (cancelled.length > 0) await cancelWaiting(deps.db, fence)
  return waiting.map(({ turnId }) => turnId)
}

/** Takes up what waited when the server stopped. Turns that had begun are not repeated. */
export async function resumeWaitingTurns(deps: SessionDeps): Promise<void> {
  const fences = new Map<string, Fence>()
  for (const row of await listWaitingRequests(deps.db, deps.hostId)) {
    const { tenant_id: tenantId, session_id: sessionId, turn_id: turnId } = row
    const fence = fences.get(sessionId) ?? fenceOf(await getSession(deps.db, tenantId, sessionId))
    if ((await findTurnStart(deps.db, tenantId, sessionId, turnId)) !== undefined) {
      await markBegun(deps.db, fence, turnId)
      continue
    }
    const message = JSON.parse(row.message ?? 'null') as MessageSend
    const turn = newWaitingTurn(row, message, Promise.resolve())
    turn.isCancelled = row.status === 'cancelled'
    deps.waiting.add(sessionId, turn)
    fences.set(sessionId, fence)
  }
  const rest = fences.values()
  const takeUp = async () => {
    for (const fence of rest) await startDraining(deps, fence)
  }
  for (let workers = 0; workers < MAX_RESUMED_AT_ONCE; workers++) void takeUp()
}

function startDraining(deps: SessionDeps, fence: Fence): Promise<void> {
  return deps.waiting.drain(fence.sessionId, (turn) => takeTurn(deps, fence, turn))
}

/** False where the server stops: what waits is in the database and begins after the next start. */
async function takeTurn(deps: SessionDeps, fence: Fence, turn: WaitingTurn): Promise<boolean> {
  const { sessionId } = fence
  let failure: unknown
  const take = async () => {
    try {
      await deps.live.get(sessionId)?.turn?.ended
      turn.begun.resolve(await begin(deps, fence, turn))
    } catch (error) {
      failure = error
      throw error
    }
  }
  const isStored = await turn.stored.then(
    () => true,
    () => false, // Told to whoever sent it.
  )
  if (!isStored) return true
  // Repeated while the database takes nothing: what was accepted keeps its place.
  if (await storeEventually(deps, take)) {
    await storeEventually(deps, () => markBegun(deps.db, fence, turn.turnId))
    return true
  }
  if (deps.live.isClosed) {
    for (const waiting of deps.waiting.list(sessionId)) waiting.begun.reject(failure)
    return false
  }
  turn.begun.reject(failure)
  deps.log.error({ err: failure, sessionId, turnId: turn.turnId }, 'a queued message could not begin')
  return true
}

/** Resolves with the place of the turn's first entry. A turn that cannot run is told of in the log all the same. */
async function begin(deps: SessionDeps, fence: Fence, turn: WaitingTurn): Promise<number> {
  const { turnId, isTaken: wasTried } = turn
  turn.isTaken = false
  try {
    // A write that was reported as failed may still have been done, where the database is on another machine.
    if (wasTried && (await findTurnStart(deps.db, fence.tenantId, fence.sessionId, turnId)) !== undefined)
      throw new AshError('internal_error', 'The log of the session could not be written')
    return await wake(deps, fence, turn, async (live) => {
      if (turn.isCancelled) throw cancelled()
      const timing = new TurnTiming(deps)
      timing.turnId = turnId
      turn.isTaken = true
      return (await startTurn(deps, live, turn.message, { turnId, timing })).seq
    })
  } catch (error) {
    if (isAshError(error, 'server_stopping')) throw error
    if (isAshError(error)) return noteUnbegun(deps, fence, turn, error)
    // Its first entry could not be stored: that is tried again.
    if (turn.isTaken) throw error
    deps.log.error(
      { err: error, sessionId: fence.sessionId, turnId },
      'the session of a queued message did not wake',
    )
    return noteUnbegun(deps, fence, turn, new AshError('internal_error', 'The session could not be woken'))
  }
}

const cancelled = () => new AshError('cancelled', 'The message was taken out of the queue before its turn')

/** Runs `start` with the session awake, which is tried for a while. */
async function wake(
  deps: SessionDeps,
  { tenantId, sessionId }: Fence,
  turn: WaitingTurn,
  start: (live: LiveSession) => Promise<number>,
): Promise<number> {
  for (const delayMs of [...WAKE_RETRY_MS, undefined]) {
    if (turn.isCancelled) throw cancelled()
    try {
      return await useSession(deps, tenantId, sessionId, start)
    } catch (error) {
      const isFinal = delayMs === undefined || turn.isTaken || !isAshError(error)
      if (isFinal || !error.isRetryable || error.code === 'server_stopping') throw error
    }
    await sleep(delayMs, undefined, { ref: false })
  }
  throw new Error('not reached: the last try returns or throws')
}

/** Stores what is missing: a try before may have stored the first of the two entries. */
async function noteUnbegun(
  { db, logs }: SessionDeps,
  fence: Fence,
  { turnId, message }: WaitingTurn,
  { code, message: error }: AshError,
): Promise<number> {
  const { tenantId, sessionId } = fence
  const log = await logs.get(fence)
  const data: ErrorEventData = { turnId, code, error, retryable: ERRORS[code].retryable }
  const begun =
    (await findTurnStart(db, tenantId, sessionId, turnId)) ??
    (await log.append('turn', turnId, JSON.stringify({ turnId, content: message.content })))
  if ((await findOpenTurn(db, tenantId, sessionId)) === turnId)
    await log.append('error', turnId, JSON.stringify(data))
  return begun
}
