import { createHash, randomUUID } from 'node:crypto'
import { AshError, type MessageSend } from '@ash-ai/shared'
import type { EventLog } from './event-log.ts'
import { findTurnStart } from './event-queries.ts'
import type { LiveSession } from './live-sessions.ts'
import { assertTalks } from './open-session.ts'
import { enqueueTurn } from './queued-turns.ts'
import type { SessionDeps } from './session-deps.ts'
import { fenceOf, getSession } from './session-queries.ts'
import { useSession } from './session-wake.ts'
import {
  findTurnRequest,
  forgetOldKeys,
  saveTurnRequest,
  type TurnRequestRow,
} from './turn-request-queries.ts'
import type { TurnTiming } from './turn-timing.ts'
import { startTurn } from './turns.ts'

const KEY_LIFETIME_MS = 24 * 3_600_000
const FORGET_INTERVAL_MS = 3_600_000

export interface SendRequest {
  tenantId: string
  sessionId: string
  message: MessageSend
  timing: TurnTiming
  /** A second request with this key is the same request. */
  idempotencyKey?: string | undefined
}

/** A message that is durable. */
export interface AcceptedTurn {
  turnId: string
  log: EventLog
  isQueued: boolean
  /** Place of the turn's first entry, known when the turn begins. */
  begun: Promise<number>
}

/** Requests with a key that are being accepted, by session and key: their twins wait for the same turn. */
export type SendsUnderWay = Map<string, { hash: string; accepted: Promise<AcceptedTurn> }>

export async function sendMessage(deps: SessionDeps, request: SendRequest): Promise<AcceptedTurn> {
  const { tenantId, sessionId, idempotencyKey } = request
  await assertTalks(deps, tenantId, sessionId)
  if (idempotencyKey === undefined) return accept(deps, request, randomUUID())
  const place = `${tenantId} ${sessionId} ${idempotencyKey}`
  const hash = hashOf(request.message)
  const twin = deps.sends.get(place)
  if (twin) return assertSame(twin.hash, hash, twin.accepted)
  const accepted = acceptOnce(deps, request, idempotencyKey, hash)
  deps.sends.set(place, { hash, accepted })
  try {
    return await accepted
  } finally {
    deps.sends.delete(place)
  }
}

async function acceptOnce(
  deps: SessionDeps,
  request: SendRequest,
  key: string,
  hash: string,
): Promise<AcceptedTurn> {
  const { tenantId, sessionId, timing } = request
  const known = await findTurnRequest(deps.db, tenantId, sessionId, key)
  if (!known) return accept(deps, request, randomUUID(), { key, hash })
  assertSame(known.request_hash, hash, undefined)
  timing.turnId = known.turn_id
  const log = await deps.logs.get(fenceOf(await getSession(deps.db, tenantId, sessionId)))
  const waiting = deps.waiting.find(sessionId, known.turn_id)
  const turn = { turnId: known.turn_id, log }
  if (waiting) return { ...turn, isQueued: true, begun: waiting.begun.promise }
  const seq = await findTurnStart(deps.db, tenantId, sessionId, known.turn_id)
  if (seq !== undefined) return { ...turn, isQueued: false, begun: Promise.resolve(seq) }
  // The key was stored and then the message was refused, or the server killed.
  return accept(deps, request, known.turn_id)
}

function assertSame<Value>(knownHash: string | null, hash: string, value: Value): Value {
  if (knownHash === hash) return value
  throw new AshError('idempotency_conflict', 'The Idempotency-Key belongs to another message; use a new one')
}

function accept(deps: SessionDeps, request: SendRequest, turnId: string, once?: Once): Promise<AcceptedTurn> {
  const { tenantId, sessionId, timing } = request
  timing.turnId = turnId
  return useSession(deps, tenantId, sessionId, (live) => acceptIn(deps, live, request, turnId, once))
}

interface Once {
  key: string
  hash: string
}

async function acceptIn(
  deps: SessionDeps,
  live: LiveSession,
  { tenantId, sessionId, message, timing }: SendRequest,
  turnId: string,
  once: Once | undefined,
): Promise<AcceptedTurn> {
  timing.reach('lookup')
  const row = (status: TurnRequestRow['status']): TurnRequestRow => ({
    tenant_id: tenantId,
    session_id: sessionId,
    turn_id: turnId,
    status,
    position: 0,
    message: status === 'queued' ? JSON.stringify(message) : null,
    idempotency_key: once?.key ?? null,
    request_hash: once?.hash ?? null,
    created_at: Date.now(),
  })
  const hasWaiting = deps.waiting.has(sessionId)
  if (message.queue && (live.turn || hasWaiting)) {
    const { begun } = await enqueueTurn(deps, live.fence, message, row('queued'))
    return { turnId, log: live.log, isQueued: true, begun: begun.promise }
  }
  if (hasWaiting)
    throw new AshError('turn_in_progress', 'Messages are waiting already. Send this one with "queue": true.')
  const prepare = once && (() => rememberKey(deps, live, row('begun')))
  const { seq } = await startTurn(deps, live, message, { turnId, timing, prepare })
  return { turnId, log: live.log, isQueued: false, begun: Promise.resolve(seq) }
}

async function rememberKey({ db }: SessionDeps, live: LiveSession, row: TurnRequestRow): Promise<void> {
  const now = row.created_at
  if (now - live.keysForgottenMs > FORGET_INTERVAL_MS) {
    live.keysForgottenMs = now
    await forgetOldKeys(db, live.fence, now - KEY_LIFETIME_MS)
  }
  await saveTurnRequest(db, row)
}

const hashOf = (message: MessageSend) => createHash('sha256').update(JSON.stringify(message)).digest('hex')
