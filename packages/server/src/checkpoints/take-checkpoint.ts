import { AshError } from '@ash-ai/shared'
import type { LiveSession } from '../sessions/live-sessions.ts'
import { getOpenSession } from '../sessions/open-session.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import type { SessionRow } from '../sessions/session-queries.ts'
import type { CheckpointRow } from './checkpoint-queries.ts'
import { saveAtRest, saveLive } from './save-checkpoint.ts'
import { getLocalCheckpoint, hasFolders } from './session-files.ts'

/**
 * A checkpoint of the session as it is now, all of it on this host; the last one where nothing has changed since.
 * Undefined where it has no files yet.
 */
export async function currentCheckpoint(
  deps: SessionDeps,
  row: SessionRow,
  reason: CheckpointRow['reason'],
): Promise<CheckpointRow | undefined> {
  const live = deps.live.awake(row.id)
  if (live) return saveLive(deps, live, { reason, seq: live.log.lastSeq, ...turnOf(live) })
  return deps.live.exclusive(row.id, async () => {
    const present = await getOpenSession(deps.db, row.tenant_id, row.id)
    // Woken meanwhile, or frozen.
    const awake = deps.live.get(row.id)
    if (awake) return saveLive(deps, awake, { reason, seq: awake.log.lastSeq, ...turnOf(awake) })
    if (present.files_pending === 0 && (await hasFolders(deps, row.id)))
      return saveAtRest(deps, present, reason)
    if (present.checkpoint_id === null) return undefined
    return getLocalCheckpoint(deps, row.tenant_id, row.id, present.checkpoint_id)
  })
}

/** The checkpoint that is named, or one of the session as it is now; all of it on this host. */
export async function checkpointFor(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  checkpointId: string | undefined,
): Promise<CheckpointRow> {
  const row = await getOpenSession(deps.db, tenantId, sessionId)
  if (checkpointId !== undefined) return getLocalCheckpoint(deps, tenantId, sessionId, checkpointId)
  const now = await currentCheckpoint(deps, row, 'request')
  if (!now) throw new AshError('no_checkpoint', `Session ${sessionId} has no files yet. Resume it once.`)
  return now
}

const turnOf = ({ turn }: LiveSession) => (turn ? { turnId: turn.id } : {})
