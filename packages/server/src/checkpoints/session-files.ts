import { chmod, chown, mkdir, rename } from 'node:fs/promises'
import { join } from 'node:path'
import {
  exists,
  faultPoint,
  fetchCheckpoint,
  markSetUp,
  type SessionDirs,
  sessionDirs,
} from '@ash-ai/sandbox'
import { AshError, isAshError, type ResumePath } from '@ash-ai/shared'
import type { CheckpointFiles, FileSource } from '../files/checkpoint-files.ts'
import type { Workspace } from '../files/workspace-folder.ts'
import { storedLimits } from '../sessions/effective-limits.ts'
import { getOpenSession, ownerOf } from '../sessions/open-session.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { fenceOf, type SessionRow, updateSession } from '../sessions/session-queries.ts'
import { type CheckpointRow, getCheckpoint } from './checkpoint-queries.ts'
import { noteUnsaved, saveAtRest, saveLive, scanIndexOf } from './save-checkpoint.ts'

/**
 * Sees to it that the files of a session are on this host, and says where they came from. Folders that survived are
 * used as they are: they are newer than any checkpoint. Only while nothing else changes the session.
 */
export async function prepareFiles(deps: SessionDeps, row: SessionRow): Promise<ResumePath> {
  if (row.files_pending === 0 && (await hasFolders(deps, row.id))) return 'cold_local'
  if (row.checkpoint_id !== null) return restoreFiles(deps, row, row.checkpoint_id)
  // A conversation without its files would be another one.
  if (row.sdk_session_id !== null)
    throw new AshError(
      'files_lost',
      `The files of session ${row.id} are not on this host, and it has no checkpoint. End it.`,
    )
  return 'cold_local'
}

/** It runs code, and has not had a sandbox yet: a session for one execution has one only then. */
const isUntouched = ({ agent_name, mode, checkpoint_id }: SessionRow) =>
  agent_name === null && mode === 'ephemeral' && checkpoint_id === null

/** Empty ones: whoever starts a sandbox finds them and goes on from there. */
async function makeFolders(deps: SessionDeps, row: SessionRow): Promise<void> {
  const dirs = sessionDirs(deps.dataDir, row.id)
  const owner = ownerOf(row)
  await makeRoot(dirs)
  await deps.disk.acquire(dirs, storedLimits(row.limits).diskMb)
  try {
    await chmod(dirs.disk, 0o711)
    const staging = join(dirs.disk, '.workspace')
    for (const folder of [dirs.home, staging]) {
      await mkdir(folder, { recursive: true, mode: 0o700 })
      if (owner) await chown(folder, owner.uid, owner.gid)
    }
    // Last: a session that has a workspace has everything.
    await rename(staging, dirs.workspace)
  } finally {
    deps.disk.release(dirs)
  }
}

export async function hasFolders({ dataDir, disk }: SessionDeps, sessionId: string): Promise<boolean> {
  const dirs = sessionDirs(dataDir, sessionId)
  await disk.ensureMounted(dirs)
  return exists(dirs.workspace)
}

async function restoreFiles(deps: SessionDeps, row: SessionRow, checkpointId: string): Promise<ResumePath> {
  const { tenant_id: tenantId, id: sessionId } = row
  const { manifest } = await getCheckpoint(deps.db, tenantId, sessionId, checkpointId)
  let fetched = await ensureLocal(deps, tenantId, manifest)
  const dirs = sessionDirs(deps.dataDir, sessionId)
  // Whatever is there is half restored, or from a time that the session has left.
  await deps.disk.remove(dirs)
  faultPoint('restore-cleared')
  await makeRoot(dirs)
  await deps.disk.acquire(dirs, storedLimits(row.limits).diskMb)
  try {
    await chmod(dirs.disk, 0o711)
    // Before the files are there: with them, but without the mark, an agent's set-up would run over them.
    await markSetUp(dirs)
    const restore = { tenantId, manifest, roots: dirs, owner: ownerOf(row), indexFile: scanIndexOf(dirs) }
    await deps.checkpoints.restore(restore).catch(async (error: unknown) => {
      // The remote store may have what is damaged here.
      if (!deps.remote || !isAshError(error, 'checkpoint_damaged')) throw error
      await fetchCheckpoint(deps.checkpoints, deps.remote, tenantId, manifest, { verifies: true })
      fetched = true
      await deps.checkpoints.restore(restore)
    })
  } finally {
    deps.disk.release(dirs)
  }
  faultPoint('restore-placed')
  await updateSession(deps.db, fenceOf(row), { files_pending: 0 })
  return fetched ? 'cold_remote' : 'cold_local'
}

/** Sandbox users pass through on the way to their files. */
async function makeRoot({ root, disk }: SessionDirs): Promise<void> {
  for (const folder of [root, disk]) {
    await mkdir(folder, { recursive: true, mode: 0o711 })
    await chmod(folder, 0o711)
  }
}

/** A checkpoint of a session, all of it on this host. */
export async function getLocalCheckpoint(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  checkpointId: string,
): Promise<CheckpointRow> {
  const row = await getCheckpoint(deps.db, tenantId, sessionId, checkpointId)
  await ensureLocal(deps, tenantId, row.manifest)
  return row
}

/** Says whether anything had to be fetched from the remote store. */
async function ensureLocal(deps: SessionDeps, tenantId: string, manifest: string): Promise<boolean> {
  if ((await deps.checkpoints.missing(tenantId, manifest)).length === 0) return false
  if (!deps.remote)
    throw new AshError(
      'checkpoint_damaged',
      'Parts of the checkpoint are not on this host, and there is no remote store (ASH_SNAPSHOT_URL)',
    )
  await fetchCheckpoint(deps.checkpoints, deps.remote, tenantId, manifest)
  return true
}

/** The folder of a session, or, where this host has none at the moment, a checkpoint of it. */
export async function openFiles(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  checkpointId?: string,
): Promise<FileSource> {
  const row = await getOpenSession(deps.db, tenantId, sessionId)
  if (checkpointId !== undefined) return { checkpoint: await open(deps, row, checkpointId) }
  const isHere = row.files_pending === 0 && (await hasFolders(deps, sessionId))
  if (isHere) return folderOf(deps, row)
  if (isUntouched(row)) return { checkpoint: NO_FILES }
  if (row.checkpoint_id === null)
    throw new AshError('no_checkpoint', `Session ${sessionId} has no files yet. Resume it once.`)
  return { checkpoint: await open(deps, row, row.checkpoint_id) }
}

const NO_FILES: CheckpointFiles = {
  list: async ({ path }) => (path === undefined ? { files: [], truncated: false } : missing(path)),
  open: async (path) => missing(path),
}

function missing(path: string): never {
  throw new AshError('file_not_found', `"${path}" does not exist`)
}

/** Lets `write` change the folder of a session, which is restored first where this host has none. */
export async function changeFiles<Result>(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  write: (workspace: Workspace) => Promise<Result>,
): Promise<Result> {
  const row = await getOpenSession(deps.db, tenantId, sessionId)
  const { writes } = deps
  const hasSandbox = () => deps.live.get(sessionId) !== undefined && !writes.isReplacing(sessionId)
  try {
    if (hasSandbox()) return await writes.write(sessionId, () => write(folderOf(deps, row)))
    const writing = Promise.withResolvers<Result>()
    await deps.live.exclusive(sessionId, async () => {
      const present = await getOpenSession(deps.db, tenantId, sessionId)
      await prepareFiles(deps, present)
      if (isUntouched(present) && !(await hasFolders(deps, sessionId))) await makeFolders(deps, present)
      // Begun under the lock, not ended: a slow client holds up nobody else.
      writes.write(sessionId, () => write(folderOf(deps, present))).then(writing.resolve, writing.reject)
    })
    return await writing.promise
  } finally {
    const live = deps.live.get(sessionId)
    if (!live || live.isPaused || live.isLeaving) writes.saveSoon(sessionId, () => saveChanged(deps, row))
  }
}

async function saveChanged(deps: SessionDeps, row: SessionRow): Promise<void> {
  try {
    await deps.live.exclusive(row.id, async () => {
      const live = deps.live.get(row.id)
      const present = await getOpenSession(deps.db, row.tenant_id, row.id)
      // A sandbox at work is saved in its time.
      if (live) await (live.isPaused && saveLive(deps, live, { reason: 'request', seq: live.log.lastSeq }))
      else if (present.files_pending === 0) await saveAtRest(deps, present, 'request')
    })
  } catch (error) {
    if (!isAshError(error, 'session_ended')) await noteUnsaved(deps, fenceOf(row), error)
  }
}

function folderOf({ dataDir }: SessionDeps, row: SessionRow): Workspace {
  const owner = ownerOf(row)
  const maxFileBytes = storedLimits(row.limits).diskMb * 1024 ** 2
  return { root: sessionDirs(dataDir, row.id).workspace, maxFileBytes, ...(owner && { owner }) }
}

async function open(deps: SessionDeps, row: SessionRow, checkpointId: string): Promise<CheckpointFiles> {
  const { checkpoints } = deps
  const tenantId = row.tenant_id
  const { manifest } = await getLocalCheckpoint(deps, tenantId, row.id, checkpointId)
  return {
    list: (options) => checkpoints.list(tenantId, manifest, options),
    open: (path) => checkpoints.openFile(tenantId, manifest, path),
  }
}
