import { faultPoint, parsePolicy, sessionDirs } from '@ash-ai/sandbox'
import type { SessionPatch } from '@ash-ai/shared'
import { deleteCheckpoints } from '../checkpoints/checkpoint-queries.ts'
import { assertCredentials } from '../credentials/credential-queries.ts'
import { beginLeaving, type LiveSession } from './live-sessions.ts'
import { getOpenSession } from './open-session.ts'
import type { SessionDeps } from './session-deps.ts'
import { noteStatus } from './session-notes.ts'
import { cancelExecutions, inTime } from './session-pause.ts'
import {
  fenceOf,
  freeUid,
  getSession,
  moveSession,
  type SessionRow,
  updateSession,
} from './session-queries.ts'
import { savesTurns } from './session-wake.ts'

/** Changes what a session may reach or spend, at once where it is live. */
export function patchSession(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  patch: SessionPatch,
): Promise<SessionRow> {
  return deps.live.exclusive(sessionId, async () => {
    const row = await getOpenSession(deps.db, tenantId, sessionId)
    const policy = patch.network && parsePolicy(patch.network)
    await assertCredentials(deps.db, tenantId, patch.credentials)
    await updateSession(deps.db, fenceOf(row), {
      ...(patch.network && { network: JSON.stringify(patch.network) }),
      ...(patch.budget && { budget: JSON.stringify(patch.budget) }),
      ...(patch.credentials && { credentials: JSON.stringify(patch.credentials) }),
      ...(patch.checkpoints && { checkpoint_settings: JSON.stringify(patch.checkpoints) }),
      ...(patch.autoResume !== undefined && { auto_resume: patch.autoResume ? 1 : 0 }),
    })
    const live = deps.live.get(sessionId)
    if (policy) live?.sandbox.setNetwork(policy)
    if (patch.budget) live?.budget.setLimits(patch.budget)
    const changed = await getSession(deps.db, tenantId, sessionId)
    if (live) live.savesTurns = savesTurns(changed)
    return changed
  })
}

/** Ends a session: no sandbox and no files remain, the log does. Ending an ended session changes nothing. */
export async function endSession(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
): Promise<SessionRow> {
  // Whoever ends a session does not wait until its turn has been given time to pause.
  if ((await getSession(deps.db, tenantId, sessionId)).status !== 'ended')
    deps.live.get(sessionId)?.hurry.abort()
  return deps.live.exclusive(sessionId, async () => {
    const row = await getSession(deps.db, tenantId, sessionId)
    if (row.status === 'ended') return row
    const live = deps.live.get(sessionId)
    // Messages that come now wait, and then hear that it has ended.
    if (live) beginLeaving(live)
    try {
      const change = { sandbox_id: null, ended_at: Date.now() }
      const ended = await moveSession(deps.db, fenceOf(row), 'ended', change)
      if (live && deps.live.release(live)) await clearLive(live)
      else if (deps.cancelRuns) await inTime(deps.cancelRuns(sessionId, 'The session ended'))
      await clearSession(deps, ended)
      return ended
    } finally {
      if (live && deps.live.get(sessionId) === live) live.isLeaving = false
    }
  })
}

async function clearLive(live: LiveSession): Promise<void> {
  await cancelExecutions(live, 'ended')
  await live.sandbox.stop()
  await live.turn?.ended
  await live.saving
}

/** What is left of a session that has ended: nothing but its row and its log. */
export async function clearSession(deps: SessionDeps, row: SessionRow): Promise<void> {
  const fence = fenceOf(row)
  faultPoint('end-stored')
  await deleteCheckpoints(deps.db, fence)
  faultPoint('end-forgotten')
  await deps.disk.remove(sessionDirs(deps.dataDir, row.id))
  // Only now may another session have the uid: nothing on disk belongs to it any more.
  await freeUid(deps.db, fence)
  await noteStatus(deps, fence, 'ended')
}
