import { setTimeout as sleep } from 'node:timers/promises'
import { AshError, ERRORS, type ErrorEventData, isAshError, MessageSend } from '@ash-ai/shared'
import { findTurnStart } from './event-queries.ts'
import type { SessionDeps } from './session-deps.ts'
import { wakeSession } from './session-lifecycle.ts'
import { type Fence, fenceOf, getSession } from './session-queries.ts'
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
/** Sessions whose queues are taken up at the same time after a start. */
const MAX_RESUMED_AT_ONCE = 4
const WAKE_RETRY_MS = [1_000, 2_000, 4_000]

export interface WaitingTurn {
  turnId: string
  position: number
  message: MessageSend
  /** Settles when it is durable that the turn waits. */
  stored: Promise<void>
  begun: PromiseWithResolvers<number>
  isCancelled: boolean
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
  if (waiting.length >= MAX_WAITING)
    throw new AshError('queue_full', `${MAX_WAITING} messages are waiting already; send this one later`)
  // Before anything is awaited: the order of arrival is the order of the queue.
  const position = Math.max(Date.now(), (waiting.at(-1)?.position ?? 0) + 1)
  const stored = saveTurnRequest(deps.db, { ...row, position })
  const turn = newWaitingTurn({ turnId: row.turn_id, position }, message, stored)
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
  place: { turnId: string; position: number },
  message: MessageSend,
  stored: Promise<void>,
): WaitingTurn {
  const begun = Promise.withResolvers<number>()
  begun.promise.catch(() => {}) // Not everybody who sends also waits.
  return { ...place, message, stored, begun, isCancelled: false }
}

/** Nothing that waits begins any more; each is told of in the log when its place is reached. */
export async function cancelWaitingTurns(deps: SessionDeps, fence: Fence): Promise<string[]> {
  const cancelled = deps.waiting.list(fence.sessionId).filter((turn) => !turn.isCancelled)
  for (const turn of cancelled) turn.isCancelled = true
  if (cancelled.length > 0) await cancelWaiting(deps.db, fence)
  return cancelled.map(({ turnId }) => turnId)
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
    const message = MessageSend.parse(JSON.parse(row.message ?? 'null'))
    const turn = newWaitingTurn({ turnId, position: row.position }, message, Promise.resolve())
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
  try {
    await turn.stored
    await deps.live.get(sessionId)?.turn?.ended
    turn.begun.resolve(await begin(deps, fence, turn))
    await markBegun(deps.db, fence, turn.turnId)
  } catch (error) {
    turn.begun.reject(error)
    if (isAshError(error, 'server_stopping')) return false
    deps.log.error({ err: error, sessionId, turnId: turn.turnId }, 'a queued message could not begin')
  }
  return true
}

/** Resolves with the place of the turn's first entry. A turn that cannot run is told of in the log all the same. */
async function begin(deps: SessionDeps, fence: Fence, turn: WaitingTurn): Promise<number> {
  try {
    const live = turn.isCancelled ? undefined : await wake(deps, fence)
    if (turn.isCancelled || !live)
      throw new AshError('cancelled', 'The message was taken out of the queue before its turn')
    const { seq } = await startTurn(deps, live, turn.message, {
      turnId: turn.turnId,
      timing: new TurnTiming(deps),
    })
    return seq
  } catch (error) {
    if (!isAshError(error) || error.code === 'server_stopping') throw error
    return noteUnbegun(deps, fence, turn, error)
  }
}

async function wake(deps: SessionDeps, { tenantId, sessionId }: Fence) {
  for (const delayMs of WAKE_RETRY_MS) {
    try {
      return await wakeSession(deps, tenantId, sessionId)
    } catch (error) {
      if (!isAshError(error) || !error.isRetryable || error.code === 'server_stopping') throw error
    }
    await sleep(delayMs, undefined, { ref: false })
  }
  return wakeSession(deps, tenantId, sessionId)
}

async function noteUnbegun(
  deps: SessionDeps,
  fence: Fence,
  { turnId, message }: WaitingTurn,
  { code, message: error }: AshError,
): Promise<number> {
  const log = await deps.logs.get(fence)
  const data: ErrorEventData = { turnId, code, error, retryable: ERRORS[code].retryable }
  const begun = log.append('turn', turnId, JSON.stringify({ turnId, content: message.content }))
  await log.append('error', turnId, JSON.stringify(data))
  return begun
}
