import {
  type AgentOptions,
  AshError,
  bridgeError,
  type DoneEventData,
  ERRORS,
  type ErrorEventData,
  isAshError,
  type MessageEvent,
  type MessageSend,
  ModelUsage,
} from '@ash-ai/shared'
import { saveTurn } from '../checkpoints/save-checkpoint.ts'
import { findOpenTurn } from './event-queries.ts'
import { type LiveSession, noteUse, storedInTime, type Turn } from './live-sessions.ts'
import { askPermission, endPermissions, withdrawPermission } from './permissions.ts'
import type { SessionDeps } from './session-deps.ts'
import { type Fence, updateSession } from './session-queries.ts'
import { storeEventually } from './store-eventually.ts'
import type { TurnTiming } from './turn-timing.ts'

type TurnDone = Omit<DoneEventData, 'sessionId' | 'turnId'>

const INTERRUPT_GRACE_MS = 10_000
/** `lastActiveAt` is at most this much behind: a write for every turn would cost more than it tells. */
const ACTIVITY_RESOLUTION_MS = 5_000

export interface TurnStart {
  turnId: string
  timing: TurnTiming
  /** What must be durable before the message is; the session is reserved for the turn already. */
  prepare?: (() => Promise<void>) | undefined
}

export interface StartedTurn {
  turnId: string
  /** Entry of the user's message: reading after the one before it shows the whole turn. */
  seq: number
}

/**
 * Accepts a message: resolves when it is durable. The turn then runs to its end by itself, whether or not
 * anybody reads along, and always ends with exactly one `done` or `error` entry.
 */
export async function startTurn(
  deps: SessionDeps,
  live: LiveSession,
  { content, queue: _, ...options }: MessageSend,
  { turnId, timing, prepare }: TurnStart,
): Promise<StartedTurn> {
  if (live.turn)
    throw new AshError(
      'turn_in_progress',
      'The session is still working on the previous message. Wait, interrupt it, or send with "queue": true.',
    )
  assertRoomInLog(deps, live)
  const { promise: ended, resolve: end } = Promise.withResolvers<void>()
  const turn: Turn = { id: turnId, ended, timing, isSent: false, isInterrupted: false }
  live.turn = turn
  noteUse(deps, live)
  const finish = () => {
    live.turn = undefined
    end()
    noteUse(deps, live)
  }
  try {
    // A turn of a session that is stored as paused would not be ended by the next start of the server.
    await storedInTime(live)
    await prepare?.()
    const seq = await live.log.append('turn', turnId, JSON.stringify({ turnId, content }))
    timing.reach('accepted')
    void runTurn(deps, live, turn, content, { ...live.options, ...options }).finally(() => {
      finish()
      saveTurn(deps, live, turnId)
    })
    return { turnId, seq }
  } catch (error) {
    // The next message gets a log that can be written again, with another sandbox.
    if (live.log.hasFailed) live.sandbox.bridge.close(logUnwritable())
    finish()
    throw error
  }
}

/** Asks the agent to stop; the turn ends with `stopReason: interrupted`. */
export async function interruptTurn({ sandbox, turn }: LiveSession): Promise<void> {
  if (!turn) return
  turn.isInterrupted = true
  // One that the agent has not heard of yet ends without it.
  if (!turn.isSent) return
  const grace = setTimeout(() => sandbox.bridge.close(unheeded()), INTERRUPT_GRACE_MS)
  void turn.ended.then(() => clearTimeout(grace))
  // A hostile bridge might never answer: whoever waits here is let go with the turn.
  await Promise.race([sandbox.bridge.call({ cmd: 'interrupt' }), turn.ended])
}

const unheeded = () =>
  new AshError('interrupted', `The agent did not stop within ${INTERRUPT_GRACE_MS / 1000} s and was ended`)

export const noTurn = () => new AshError('no_turn', 'The session is not working on a message')

async function runTurn(
  deps: SessionDeps,
  live: LiveSession,
  turn: Turn,
  content: unknown,
  options: AgentOptions,
): Promise<void> {
  const { id: turnId, timing } = turn
  const startedMs = performance.now()
  const deadline = limitTurn(deps, live)
  let outcome = 'done'
  try {
    live.budget.beginTurn(turnId)
    // The sandbox stands still while the files of the turn before are saved.
    if (live.saving !== undefined) await live.saving
    const done = turn.isInterrupted ? INTERRUPTED : await relayEvents(deps, live, turn, { content, options })
    if (deadline.hasPassed()) throw turnTimeout(deps)
    await live.log.append(
      'done',
      turnId,
      JSON.stringify({
        sessionId: live.fence.sessionId,
        turnId,
        ...done,
        ...(await meterTurn(deps, live, turnId)),
      }),
    )
  } catch (error) {
    const data = turnError(turnId, deadline.hasPassed() ? turnTimeout(deps) : await explain(live, error))
    outcome = data.code
    deps.log.warn({ sessionId: live.fence.sessionId, turnId, code: data.code }, 'turn failed')
    await meterTurn(deps, live, turnId).catch((cause: unknown) =>
      deps.log.error({ err: cause }, 'usage not stored'),
    )
    await endWithError(deps, live, turnId, data)
  } finally {
    deadline.clear()
    deps.metrics.turnSeconds.observe((performance.now() - startedMs) / 1000)
    timing.reach('done')
    deps.metrics.turns.inc({ outcome })
    noteActivity(deps, live)
  }
}

/** Not awaited: the client has seen the end and may send its next message now. */
function noteActivity(deps: SessionDeps, live: LiveSession): void {
  const now = Date.now()
  if (now - live.lastNotedMs < ACTIVITY_RESOLUTION_MS) return
  live.lastNotedMs = now
  updateSession(deps.db, live.fence, { last_active_at: now }).catch((error: unknown) =>
    deps.log.error({ err: error }, 'session not touched'),
  )
}

/** What the turn cost is stored before its end is told; a turn that asked nothing of the model costs no write. */
async function meterTurn(
  deps: SessionDeps,
  live: LiveSession,
  turnId: string,
): Promise<{ modelUsage?: ModelUsage }> {
  const { turn } = live.budget.totals(turnId)
  if (turn.requests === 0) return {}
  await updateSession(deps.db, live.fence, { model_usage: JSON.stringify(live.budget) })
  return { modelUsage: ModelUsage.parse(turn) }
}

/** An agent that crashed because the kernel needed its memory says so. */
async function explain(live: LiveSession, error: unknown): Promise<unknown> {
  if (!isAshError(error, 'agent_crashed')) return error
  // The turn must end, also without the explanation.
  if (!(await live.sandbox.hasJustKilled().catch(() => false))) return error
  return new AshError('oom_killed', 'The agent was killed: the sandbox used more memory than its limit', {
    cause: error,
  })
}

/**
 * A log that cannot be written is a fault the client must not mistake for an answer: the sandbox goes, and the
 * turn ends as soon as its end can be stored.
 */
async function endWithError(
  deps: SessionDeps,
  live: LiveSession,
  turnId: string,
  data: ErrorEventData,
): Promise<void> {
  try {
    await live.log.append('error', turnId, JSON.stringify(data))
  } catch (error) {
    deps.log.error({ err: error, sessionId: live.fence.sessionId }, 'the end of a turn could not be stored')
    live.sandbox.bridge.close(logUnwritable())
    await storeEventually(deps, () => appendEnd(deps, live.fence, turnId, data))
  }
}

async function appendEnd(
  { db, logs }: SessionDeps,
  fence: Fence,
  turnId: string,
  data: ErrorEventData,
): Promise<void> {
  // A commit that was reported as failed may still have been one, where the database is on another machine.
  if ((await findOpenTurn(db, fence.tenantId, fence.sessionId)) !== turnId) return
  await (await logs.get(fence)).append('error', turnId, JSON.stringify(data))
}

const logUnwritable = () => new AshError('internal_error', 'The log of the session could not be written')

const INTERRUPTED: TurnDone = { stopReason: 'interrupted' }

/** Copies the bridge's events into the log, each as the bytes the bridge wrote. */
async function relayEvents(
  deps: SessionDeps,
  live: LiveSession,
  turn: Turn,
  query: { content: unknown; options: AgentOptions },
): Promise<TurnDone> {
  const { bridge } = live.sandbox
  const running = bridge.run({ cmd: 'query', ...query }, (event) => {
    turn.timing.reach('first_message')
    if (event.ev === 'message') return relayMessage(deps, live, turn.id, event)
    if (event.ev === 'permission_request')
      return askPermission(deps, live, turn.id, event, query.options.permissions)
    if (event.ev === 'permission_withdrawn') return withdrawPermission(deps, live, event.requestId)
  })
  turn.isSent = true
  turn.timing.reach('command')
  try {
    const end = await running
    if (end.ev === 'done') return pickDone(end.data)
    if (end.ev === 'error') throw bridgeError(end)
    throw new AshError('bridge_protocol_error', 'The bridge ended a turn without an outcome')
  } catch (error) {
    // An agent that nobody hears any more must not go on.
    if (!isAshError(error)) bridge.close(logUnwritable())
    if (isAshError(error, 'bridge_protocol_error')) bridge.close(error)
    throw error
  } finally {
    await endPermissions(deps, live)
  }
}

/** Messages that the SDK sends between turns belong to the log too. */
export async function relayUnsolicited(deps: SessionDeps, live: LiveSession): Promise<void> {
  const { bridge } = live.sandbox
  try {
    await bridge.takeUnsolicited((event) => {
      if (event.ev === 'message') return relayMessage(deps, live, null, event)
    })
  } catch (error) {
    // The end of the bridge is reported where the sandbox is watched; a log that fails ends the sandbox.
    if (!isAshError(error)) bridge.close(logUnwritable())
  }
}

/** Returns a promise only where the next event has to wait. */
function relayMessage(
  deps: SessionDeps,
  live: LiveSession,
  turnId: string | null,
  message: MessageEvent,
): Promise<void> | undefined {
  const { type, json, sdkSessionId } = message
  if (sdkSessionId !== undefined && sdkSessionId !== live.sdkSessionId) {
    return updateSession(deps.db, live.fence, { sdk_session_id: sdkSessionId }).then(() => {
      live.sdkSessionId = sdkSessionId
      return relayMessage(deps, live, turnId, message)
    })
  }
  if (type === 'stream_event') return live.log.preview(turnId, json)
  try {
    assertRoomInLog(deps, live)
  } catch (error) {
    // An agent that nobody can hear any more must not go on.
    live.sandbox.bridge.close(error as AshError)
    throw error
  }
  return live.log.write('message', turnId, json)
}

/** Ends, lifecycle and refusals are still stored in a log that is full: what happened can always be read. */
function assertRoomInLog({ maxLogChars }: SessionDeps, { log }: LiveSession): void {
  if (log.totalChars < maxLogChars) return
  throw new AshError('log_full', `The log of the session has reached its limit of ${maxLogChars} characters`)
}

/** What a bridge says is hostile: only the known fields are kept. */
function pickDone({
  stopReason,
  usage,
  reopened,
}: {
  stopReason: string
  usage?: unknown
  reopened?: string[]
}) {
  return {
    stopReason: stopReason.slice(0, 100),
    ...(usage !== undefined && { usage }),
    ...(reopened !== undefined && { reopened }),
  }
}

function turnError(turnId: string, error: unknown): ErrorEventData {
  const known = isAshError(error)
    ? error
    : new AshError('internal_error', 'The turn failed inside Ash; its log has the reason')
  return { turnId, code: known.code, error: known.message, retryable: ERRORS[known.code].retryable }
}

const turnTimeout = (deps: SessionDeps) =>
  new AshError('turn_timeout', `The turn took longer than ${deps.turnTimeoutMs / 1000} s and was stopped`)

/** At the deadline the agent is interrupted; one that does not heed it loses its sandbox. */
function limitTurn(deps: SessionDeps, live: LiveSession): { hasPassed: () => boolean; clear: () => void } {
  let hasPassed = false
  let timer = setTimeout(() => {
    hasPassed = true
    live.sandbox.bridge.call({ cmd: 'interrupt' }).catch(() => {})
    timer = setTimeout(() => live.sandbox.bridge.close(turnTimeout(deps)), INTERRUPT_GRACE_MS)
  }, deps.turnTimeoutMs)
  return { hasPassed: () => hasPassed, clear: () => clearTimeout(timer) }
}
