import { faultPoint, INODES_PER_MB, type SavedCheckpoint } from '@ash-ai/sandbox'
import { AshError } from '@ash-ai/shared'
import { storedLimits } from '../sessions/effective-limits.ts'
import { isBusy, type LiveSession } from '../sessions/live-sessions.ts'
import { getOpenSession } from '../sessions/open-session.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { noteStatus } from '../sessions/session-notes.ts'
import { fenceOf, moveSession, type SessionRow } from '../sessions/session-queries.ts'
import { type CheckpointRow, findCheckpoint, getCheckpoint } from './checkpoint-queries.ts'
import { noteCheckpoint, record, saveAtRest } from './save-checkpoint.ts'
import { getLocalCheckpoint, hasFolders } from './session-files.ts'

/** The session, paused, goes back to an earlier checkpoint of its own. What it leaves is saved as one first. */
export async function rollbackSession(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  checkpointId: string,
): Promise<SessionRow> {
  await getOpenSession(deps.db, tenantId, sessionId)
  await getCheckpoint(deps.db, tenantId, sessionId, checkpointId)
  return whileStopped(deps, tenantId, sessionId, async (row) => {
    await saveCurrent(deps, row, 'rollback', checkpointId)
    const target = await getCheckpoint(deps.db, tenantId, sessionId, checkpointId)
    faultPoint('rollback-saved')
    const change = { checkpoint_id: target.id, files_pending: 1, sdk_session_id: target.sdk_session_id }
    const log = await deps.logs.get(fenceOf(row))
    const rolledBackTo = { checkpointId: target.id, seq: target.seq }
    const [paused] = await Promise.all([
      moveSession(deps.db, fenceOf(row), 'paused', change, ['paused', 'error']),
      log.append('status', null, JSON.stringify({ status: 'paused', rolledBackTo })),
    ])
    faultPoint('rollback-stored')
    return paused
  })
}

export type BuildFiles = (
  /** Manifest of the files as they are, if there are any. */
  base: string | undefined,
  commit: (saved: SavedCheckpoint) => Promise<CheckpointRow>,
) => Promise<CheckpointRow>

/** The session, paused, gets other files: those of the checkpoint that `build` makes from the present ones. */
export function replaceFiles(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  build: BuildFiles,
): Promise<CheckpointRow> {
  return whileStopped(deps, tenantId, sessionId, async (row) => {
    const base = await saveCurrent(deps, row, 'request')
    const { lastSeq } = await deps.logs.get(fenceOf(row))
    const about = { reason: 'upload' as const, seq: lastSeq }
    if (base) await getLocalCheckpoint(deps, tenantId, sessionId, base.id)
    const made = await build(base?.manifest, (saved) => {
      assertFits(row, saved)
      return record(deps, fenceOf(row), saved, about, { files_pending: 1 })
    })
    await noteCheckpoint(deps, fenceOf(row), made)
    return made
  })
}

/** What is accepted must be there with the first use. */
function assertFits({ limits }: SessionRow, { bytes, files }: SavedCheckpoint): void {
  const { diskMb } = storedLimits(limits)
  if (bytes <= diskMb * 1024 ** 2 && files <= diskMb * INODES_PER_MB) return
  throw new AshError(
    'disk_full',
    `With the archive the session would have ${files} files of ${bytes} bytes, more than fits on its ${diskMb} MB`,
  )
}

/** Runs `change` with no sandbox left, and nothing that could start one. Refused while there is work. */
function whileStopped<Result>(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  change: (row: SessionRow) => Promise<Result>,
): Promise<Result> {
  return deps.live.exclusive(sessionId, async () => {
    const row = await getOpenSession(deps.db, tenantId, sessionId)
    const live = deps.live.get(sessionId)
    if (deps.waiting.has(sessionId) || deps.writes.isWriting(sessionId) || (live && isBusy(deps, live)))
      throw new AshError('turn_in_progress', 'The session is at work. Wait for it, or interrupt it first.')
    return deps.writes.replace(sessionId, async () => change(live ? await stopForGood(deps, live, row) : row))
  })
}

async function stopForGood(deps: SessionDeps, live: LiveSession, row: SessionRow): Promise<SessionRow> {
  live.isLeaving = true
  await live.saving
  try {
    const from = ['active', 'paused'] as const
    const paused = await moveSession(deps.db, live.fence, 'paused', { sandbox_id: null }, [...from])
    if (deps.live.release(live)) await live.sandbox.stop()
    if (row.status === 'active') await noteStatus(deps, live.fence, 'paused')
    return paused
  } finally {
    if (deps.live.get(live.fence.sessionId) === live) live.isLeaving = false
  }
}

async function saveCurrent(
  deps: SessionDeps,
  row: SessionRow,
  reason: CheckpointRow['reason'],
  spared?: string,
): Promise<CheckpointRow | undefined> {
  if (row.files_pending === 0 && (await hasFolders(deps, row.id)))
    return saveAtRest(deps, row, reason, spared)
  return row.checkpoint_id === null
    ? undefined
    : findCheckpoint(deps.db, row.tenant_id, row.id, row.checkpoint_id)
}
