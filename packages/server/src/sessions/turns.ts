import { randomUUID } from 'node:crypto'
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
import type { LiveSession } from './live-sessions.ts'
import type { SessionDeps } from './session-deps.ts'
import { updateSession } from './session-queries.ts'

const INTERRUPT_GRACE_MS = 10_000
/** `lastActiveAt` is at most this much behind: a write for every turn would cost more than it tells. */
const ACTIVITY_RESOLUTION_MS = 5_000

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
  message: MessageSend,
): Promise<StartedTurn> {
  if (live.turn)
    throw new AshError('turn_in_progress', 'The session is still working on the previous message')
  const { content, ...options } = message
  const turnId = randomUUID()
  const { promise: ended, resolve: end } = Promise.withResolvers<void>()
  live.turn = { id: turnId, ended }
  const finish = () => {
    live.turn = undefined
    end()
  }
  try {
    const seq = await live.log.append('turn', turnId, JSON.stringify({ turnId, content }))
    void runTurn(deps, live, turnId, content, { ...live.options, ...options }).finally(finish)
    return { turnId, seq }
  } catch (error) {
    finish()
    throw error
  }
}

/** Asks the agent to stop; the turn ends with `stopReason: interrupted`. */
export async function interruptTurn(live: LiveSession | undefined): Promise<void> {
  if (!live?.turn) throw new AshError('no_turn', 'The session is not working on a message')
  await live.sandbox.bridge.call({ cmd: 'interrupt' })
}

async function runTurn(
  deps: SessionDeps,
  live: LiveSession,
  turnId: string,
  content: unknown,
  options: AgentOptions,
): Promise<void> {
  const endTimer = deps.metrics.turnSeconds.startTimer()
  const deadline = limitTurn(deps, live)
  let outcome = 'done'
  try {
    live.budget.beginTurn(turnId)
    const done = await relayEvents(deps, live, turnId, { content, options })
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
    endTimer()
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
  if (!isAshError(error, 'agent_crashed') || !(await live.sandbox.hasJustKilled())) return error
  return new AshError('oom_killed', 'The agent was killed: the sandbox used more memory than its limit', {
    cause: error,
  })
}

/** A log that cannot be written is a fault the client must not mistake for an answer: the sandbox goes. */
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
    live.sandbox.bridge.close(new AshError('internal_error', 'The log of the session could not be written'))
  }
}

/** Copies the bridge's events into the log, each as the bytes the bridge wrote. */
async function relayEvents(
  deps: SessionDeps,
  live: LiveSession,
  turnId: string,
  query: { content: unknown; options: AgentOptions },
): Promise<Omit<DoneEventData, 'sessionId' | 'turnId'>> {
  for await (const event of live.sandbox.bridge.request({ cmd: 'query', ...query })) {
    if (event.ev === 'message') await relayMessage(deps, live, turnId, event)
    if (event.ev === 'done') return pickDone(event.data)
    if (event.ev === 'error') throw bridgeError(event)
  }
  throw new AshError('bridge_protocol_error', 'The bridge ended a turn without an outcome')
}

/** Messages that the SDK sends between turns belong to the log too. */
export async function relayUnsolicited(deps: SessionDeps, live: LiveSession): Promise<void> {
  try {
    for await (const event of live.sandbox.bridge.unsolicited()) {
      if (event.ev === 'message') await relayMessage(deps, live, null, event)
    }
  } catch (error) {
    // The end of the bridge is reported where the sandbox is watched; a log that fails ends the sandbox.
    if (!isAshError(error))
      live.sandbox.bridge.close(new AshError('internal_error', 'The log of the session could not be written'))
  }
}

async function relayMessage(
  deps: SessionDeps,
  live: LiveSession,
  turnId: string | null,
  { type, json, sdkSessionId }: MessageEvent,
): Promise<void> {
  if (sdkSessionId !== undefined && sdkSessionId !== live.sdkSessionId) {
    live.sdkSessionId = sdkSessionId
    await updateSession(deps.db, live.fence, { sdk_session_id: sdkSessionId })
  }
  if (type === 'stream_event') live.log.preview(turnId, json)
  else await live.log.write('message', turnId, json)
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
