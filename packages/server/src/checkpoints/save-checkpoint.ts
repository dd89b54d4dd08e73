import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import {
  faultPoint,
  type Sandbox,
  type SavedCheckpoint,
  type SessionDirs,
  sessionDirs,
} from '@ash-ai/sandbox'
import { type CheckpointEventData, type CheckpointSettings, isAshError } from '@ash-ai/shared'
import type { LiveSession } from '../sessions/live-sessions.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import {
  type Fence,
  fenceOf,
  getSession,
  type SessionRow,
  updateSession,
} from '../sessions/session-queries.ts'
import {
  type CheckpointRow,
  findCheckpoint,
  insertCheckpoint,
  pruneCheckpoints,
} from './checkpoint-queries.ts'
import { settingsOf } from './session-settings.ts'

/** What a checkpoint is about. */
export interface CheckpointAbout {
  reason: CheckpointRow['reason']
  /** The last entry of the log that it covers. */
  seq: number
  turnId?: string
  /** A checkpoint that must not be forgotten to make room: the session is about to go back to it. */
  spared?: string
  /** The sandbox stays frozen afterwards, so that nothing changes any more. */
  staysFrozen?: boolean
}

/** What was seen in the folders of a session, so that unchanged files are not read again. */
export const scanIndexOf = ({ root }: Pick<SessionDirs, 'root'>) => join(root, 'scan-index')

/** Saves the files of a live session, after any other checkpoint of it that is under way. */
export function saveLive(
  deps: SessionDeps,
  live: LiveSession,
  about: CheckpointAbout,
): Promise<CheckpointRow> {
  const before = live.saving
  const save = async () => {
    await before
    return saveFiles(deps, live.fence, live.sandbox, about)
  }
  const saved = save()
  const settled = saved.then(ignore, ignore).then(() => {
    if (live.saving === settled) live.saving = undefined
  })
  live.saving = settled
  return saved
}

const ignore = () => {}

/**
 * Saves workspace and home as they are now, and tells of it in the log. Nothing runs in the sandbox meanwhile, where
 * this machine can freeze it.
 */
async function saveFiles(
  deps: SessionDeps,
  fence: Fence,
  sandbox: Sandbox | undefined,
  about: CheckpointAbout,
): Promise<CheckpointRow> {
  const startedMs = performance.now()
  const startedAt = nextMs()
  const dirs = sessionDirs(deps.dataDir, fence.sessionId)
  if (!sandbox) await deps.disk.ensureMounted(dirs)
  let isFrozenHere = false
  const pids = async () => {
    if (!sandbox) return []
    const wasFrozen = sandbox.isFrozen
    const isStill = wasFrozen || (await sandbox.freeze())
    isFrozenHere = isStill && !wasFrozen
    return isStill ? sandbox.pids() : undefined
  }
  let row: CheckpointRow
  try {
    row = await deps.checkpoints.save(
      { tenantId: fence.tenantId, roots: dirs, indexFile: scanIndexOf(dirs), pids },
      (saved) => record(deps, fence, saved, about),
    )
  } finally {
    if (isFrozenHere && !about.staysFrozen) sandbox?.thaw()
  }
  deps.metrics.checkpointSeconds.observe((performance.now() - startedMs) / 1000)
  if (row.created_at >= startedAt) await noteCheckpoint(deps, fence, row)
  return row
}

/** Makes a checkpoint known: from here on nothing that it refers to is garbage. */
export async function record(
  deps: SessionDeps,
  fence: Fence,
  saved: SavedCheckpoint,
  about: CheckpointAbout,
  change: Pick<Partial<SessionRow>, 'files_pending'> = {},
): Promise<CheckpointRow> {
  const session = await getSession(deps.db, fence.tenantId, fence.sessionId)
  const same = await findSame(deps, session, saved, about)
  if (same) return same
  const row: CheckpointRow = {
    id: randomUUID(),
    tenant_id: fence.tenantId,
    session_id: fence.sessionId,
    owner_id: deps.hostId,
    seq: about.seq,
    turn_id: about.turnId ?? null,
    reason: about.reason,
    manifest: saved.manifest,
    files: saved.files,
    bytes: saved.bytes,
    settings: JSON.stringify(settingsOf(session)),
    sdk_session_id: session.sdk_session_id,
    uploaded_at: null,
    created_at: nextMs(),
  }
  await insertCheckpoint(deps.db, fence, row)
  faultPoint('checkpoint-recorded')
  await updateSession(deps.db, fence, { checkpoint_id: row.id, ...change })
  void prune(deps, session, about.spared)
  deps.uploads?.wake()
  return row
}

/** What is only asked for, and has not changed since the last checkpoint, needs no other. */
async function findSame(
  { db }: SessionDeps,
  { tenant_id, id, checkpoint_id }: SessionRow,
  { manifest }: SavedCheckpoint,
  { reason }: CheckpointAbout,
): Promise<CheckpointRow | undefined> {
  if (checkpoint_id === null || reason !== 'request') return undefined
  const current = await findCheckpoint(db, tenant_id, id, checkpoint_id)
  return current?.manifest === manifest ? current : undefined
}

async function prune(deps: SessionDeps, session: SessionRow, spared: string | undefined): Promise<void> {
  try {
    await pruneCheckpoints(deps.db, fenceOf(session), { ...retentionOf(deps, session), spared })
  } catch (error) {
    deps.log.error({ err: error, sessionId: session.id }, 'old checkpoints of a session were not forgotten')
  }
}

/** What a session keeps, by its own words or the operator's. */
export function retentionOf(
  { retention }: Pick<SessionDeps, 'retention'>,
  { checkpoint_settings }: Pick<SessionRow, 'checkpoint_settings'>,
) {
  const settings = JSON.parse(checkpoint_settings) as CheckpointSettings
  const { keep = retention.checkpoints, keepDays = retention.days } = settings
  return { keep, ...(keepDays !== undefined && { keepDays }) }
}

let lastMs = 0

/** No two of them are the same: the order of checkpoints is that of their times. */
export function nextMs(): number {
  lastMs = Math.max(Date.now(), lastMs + 1)
  return lastMs
}

export async function noteCheckpoint(
  deps: SessionDeps,
  fence: Fence,
  { id, seq, reason, files, bytes, turn_id }: CheckpointRow,
): Promise<void> {
  const about = turn_id === null ? {} : { turnId: turn_id }
  const data: CheckpointEventData = { id, seq, ...about, reason, files, bytes }
  // Of no turn: it comes after the end of the one it follows, and perhaps within the next.
  await (await deps.logs.get(fence)).append('checkpoint', null, JSON.stringify(data))
}

/** After a turn. What goes wrong is told in the log: the files themselves are still there. */
export function saveTurn(deps: SessionDeps, live: LiveSession, turnId: string): void {
  if (!live.savesTurns || live.sandbox.bridge.isClosed || deps.live.isClosed) return
  saveLive(deps, live, { reason: 'turn', seq: live.log.lastSeq, turnId }).catch((error: unknown) =>
    noteUnsaved(deps, live.fence, error),
  )
}

/** Tells in the log, and in the server's own, that files could not be saved. */
export async function noteUnsaved(deps: SessionDeps, fence: Fence, error: unknown): Promise<void> {
  // Ended meanwhile: nothing is to be saved any more.
  if (isAshError(error, 'session_conflict')) return
  deps.metrics.checkpointFailures.inc()
  deps.log.error({ err: error, sessionId: fence.sessionId }, 'files of a session could not be saved')
  const reason = isAshError(error) ? error.message : 'the log of the server has the reason'
  const data = { level: 'error', text: `The files could not be saved as a checkpoint: ${reason}` }
  try {
    await (await deps.logs.get(fence)).append('log', null, JSON.stringify(data))
  } catch (cause) {
    deps.log.error({ err: cause, sessionId: fence.sessionId }, 'the log of a session could not be written')
  }
}

/** Saves the files of a session that has no sandbox, where this host has them. */
export async function saveAtRest(
  deps: SessionDeps,
  row: SessionRow,
  reason: CheckpointRow['reason'],
  spared?: string,
): Promise<CheckpointRow> {
  const { lastSeq } = await deps.logs.get(fenceOf(row))
  const about = { reason, seq: lastSeq, ...(spared !== undefined && { spared }) }
  return saveFiles(deps, fenceOf(row), undefined, about)
}
