import { setTimeout as sleep } from 'node:timers/promises'
import { faultPoint } from '@ash-ai/sandbox'
import { AshError } from '@ash-ai/shared'
import { noteUnsaved, saveLive } from '../checkpoints/save-checkpoint.ts'
import { beginLeaving, isBusy, type LiveSession, noteUse } from './live-sessions.ts'
import { getOpenSession } from './open-session.ts'
import type { SessionDeps } from './session-deps.ts'
import { noteStatus } from './session-notes.ts'
import { fenceOf, ignoreConflict, moveSession, type SessionRow, updateSession } from './session-queries.ts'
import { interruptTurn } from './turns.ts'

const TURN_WAIT_MS = 30_000
const WORK_POLL_MS = 10
/** What was cancelled has ended its call by then. */
const CANCELLED_WAIT_MS = 5_000

/**
 * Saves the files of a session and freezes its sandbox, or, with `stops` and where nothing can be frozen, ends it. A
 * turn or code under way has 30 seconds; then it is interrupted.
 */
export function pauseSession(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  { stops = false } = {},
): Promise<SessionRow> {
  return deps.live.exclusive(sessionId, async () => {
    const row = await getOpenSession(deps.db, tenantId, sessionId)
    if (deps.waiting.has(sessionId))
      throw new AshError('turn_in_progress', 'Messages are waiting in the session. Interrupt it first.')
    const live = deps.live.get(sessionId)
    if (!live) return row.status === 'paused' ? row : notePaused(deps, row)
    if (live.isPaused) return stops ? dropFrozen(deps, live, row) : row
    beginLeaving(live)
    try {
      await settleWork(live)
      await saveForPause(deps, live)
      faultPoint('pause-saved')
      return await leave(deps, live, { stops })
    } finally {
      // Where it did not come to that: as if nothing had been asked.
      if (live.isLeaving && deps.live.get(sessionId) === live) goOn(live)
    }
  })
}

function goOn(live: LiveSession): void {
  if (!live.isPaused) live.sandbox.thaw()
  live.isLeaving = false
}

/** Waits for what is under way, and stops the turn, or the code, that takes longer. */
async function settleWork(live: LiveSession): Promise<void> {
  const signal = AbortSignal.any([AbortSignal.timeout(TURN_WAIT_MS), live.hurry.signal])
  const late = new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
  while ((live.turn || live.uses > 0) && !signal.aborted)
    await Promise.race([live.turn?.ended ?? sleep(WORK_POLL_MS), late])
  const { turn } = live
  if (turn) {
    await interruptTurn(live).catch(() => {}) // A bridge that is gone has ended the turn, too.
    await turn.ended
  }
  // What only waits to begin does so when the session is awake again.
  if (signal.aborted) await cancelExecutions(live, live.hurry.signal.aborted ? 'ended' : 'was paused')
}

/** They are over with a reason before their sandbox is, and its calls with them. Does not wait for ever. */
export async function cancelExecutions(live: LiveSession, became: 'ended' | 'was paused'): Promise<void> {
  const { executions } = live
  if (!executions || executions.size === 0) return
  const signal = await inTime(executions.cancelAll(`The session ${became}`))
  while (live.uses > 0 && !signal.aborted) await sleep(WORK_POLL_MS)
}

/** Waits for what is being cancelled; the signal says that it was too long. */
export async function inTime(cancelled: Promise<void>): Promise<AbortSignal> {
  const signal = AbortSignal.timeout(CANCELLED_WAIT_MS)
  const late = new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
  await Promise.race([cancelled, late])
  return signal
}

/** A checkpoint that fails is told of; the files themselves stay where they are. */
async function saveForPause(deps: SessionDeps, live: LiveSession): Promise<void> {
  await saveLive(deps, live, { reason: 'pause', seq: live.log.lastSeq, staysFrozen: true }).catch(
    (error: unknown) => noteUnsaved(deps, live.fence, error),
  )
}

/** Paused in the database first: whatever fails or dies after that, the session is what its row says. */
async function leave(
  deps: SessionDeps,
  live: LiveSession,
  { stops }: { stops: boolean },
): Promise<SessionRow> {
  // Calls that did not end in time would hang until somebody resumes the session.
  const keeps = !stops && live.sandbox.isFrozen && live.uses === 0
  const [row] = await Promise.all([
    moveSession(deps.db, live.fence, 'paused', keeps ? {} : { sandbox_id: null }),
    noteStatus(deps, live.fence, 'paused'),
  ])
  faultPoint('pause-stored')
  if (keeps) {
    live.isPaused = true
    live.isLeaving = false
    noteUse(deps, live)
  } else if (deps.live.release(live)) {
    await live.sandbox.stop()
  }
  faultPoint('pause-stopped')
  return row
}

/** A paused session gives up its sandbox: nothing has changed since its checkpoint. */
async function dropFrozen(deps: SessionDeps, live: LiveSession, row: SessionRow): Promise<SessionRow> {
  if (deps.live.release(live)) await live.sandbox.stop()
  await updateSession(deps.db, live.fence, { sandbox_id: null })
  return { ...row, sandbox_id: null }
}

async function notePaused(deps: SessionDeps, row: SessionRow): Promise<SessionRow> {
  const paused = await moveSession(deps.db, fenceOf(row), 'paused', { sandbox_id: null })
  await noteStatus(deps, fenceOf(row), 'paused')
  return paused
}

/**
 * Saves a session that has nothing to do and ends its sandbox. False where it has work, or got some before this
 * could begin; then it goes on.
 */
export async function evictSession(
  deps: SessionDeps,
  live: LiveSession,
  reason: 'idle' | 'capacity' | 'lifetime',
): Promise<boolean> {
  if (isBusy(deps, live) || live.isLeaving) return false
  // From here on whoever wants it waits, and then finds it paused.
  live.isLeaving = true
  const { sessionId, tenantId } = live.fence
  return deps.live.exclusive(sessionId, async () => {
    if (deps.live.get(sessionId) !== live) return true
    // Somebody woke it before this could begin.
    if (!live.isLeaving) return false
    deps.log.info({ sessionId, sandboxId: live.sandbox.id, reason }, 'session gives up its sandbox')
    deps.metrics.evictions.inc({ reason })
    try {
      if (live.isPaused) {
        await dropFrozen(deps, live, await getOpenSession(deps.db, tenantId, sessionId))
      } else {
        await saveForPause(deps, live)
        await leave(deps, live, { stops: true }).catch(ignoreConflict)
      }
      return true
    } finally {
      if (live.isLeaving && deps.live.get(sessionId) === live) goOn(live)
    }
  })
}
