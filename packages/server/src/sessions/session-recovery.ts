import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { sessionDirs } from '@ash-ai/sandbox'
import { AshError, type ErrorEventData } from '@ash-ai/shared'
import { noteUnsaved, saveLive } from '../checkpoints/save-checkpoint.ts'
import { findOpenTurn } from './event-queries.ts'
import type { LiveSession } from './live-sessions.ts'
import { endPermissions, expireLostPermissions, SERVER_STOPPED } from './permissions.ts'
import type { SessionDeps } from './session-deps.ts'
import { clearSession } from './session-lifecycle.ts'
import { noteStatus } from './session-notes.ts'
import {
  type Fence,
  fenceOf,
  ignoreConflict,
  listHalfEnded,
  listOwnedIds,
  moveSession,
  reclaimSessions,
  type SessionRow,
} from './session-queries.ts'

/**
 * After a stop of any kind: sessions that were live are paused, their open turns get a typed end, and nothing of
 * an old sandbox remains. Their processes died with the old server.
 */
export async function recoverSessions(deps: SessionDeps): Promise<number> {
  const reclaimed = await reclaimSessions(deps.db, deps.hostId)
  for (const row of reclaimed) {
    const fence = fenceOf(row)
    await endOpenTurn(deps, fence)
    // Only now: a server that is killed here as well finds it again.
    await moveSession(deps.db, fence, 'paused', { sandbox_id: null }).then(
      () => noteStatus(deps, fence, 'paused'),
      ignoreConflict,
    )
  }
  for (const row of await listHalfEnded(deps.db, deps.hostId)) await finishEnding(deps, row)
  await removeLeftovers(deps)
  return reclaimed.length
}

async function endOpenTurn(deps: SessionDeps, fence: Fence): Promise<void> {
  const turnId = await findOpenTurn(deps.db, fence.tenantId, fence.sessionId)
  if (turnId === undefined) return
  const log = await deps.logs.get(fence)
  await expireLostPermissions(deps, log, fence, turnId)
  const data: ErrorEventData = {
    turnId,
    code: 'interrupted',
    error: 'The server stopped during this turn',
    retryable: true,
  }
  await log.append('error', turnId, JSON.stringify(data))
}

/** Folders of sessions that are not kept, and sockets of sandboxes that are gone. */
async function removeLeftovers(deps: SessionDeps): Promise<void> {
  const { db, dataDir, hostId } = deps
  const kept = await listOwnedIds(db, hostId)
  for (const id of await readdir(join(dataDir, 'sandboxes')).catch(() => [])) {
    const dirs = sessionDirs(dataDir, id)
    if (kept.has(id)) await rm(dirs.run, { recursive: true, force: true })
    else await removeUnknown(deps, id)
  }
}

/** Of a spare, or of a session that has ended; never of one that is open, whoever it belongs to. */
async function removeUnknown(deps: SessionDeps, id: string): Promise<void> {
  const row = await deps.db.selectFrom('sessions').selectAll().where('id', '=', id).executeTakeFirst()
  if (row && row.status !== 'ended') {
    deps.log.error({ sessionId: id, ownerId: row.owner_id }, 'a session of another host has files here')
  } else if (row?.owner_id === deps.hostId) {
    await finishEnding(deps, row)
  } else {
    await removeFolder(deps, id)
  }
}

/** The server was killed while it ended this one. What cannot be cleared up now is tried at the next start. */
async function finishEnding(deps: SessionDeps, row: SessionRow): Promise<void> {
  try {
    await endOpenTurn(deps, fenceOf(row))
    await clearSession(deps, row)
  } catch (error) {
    deps.log.error({ err: error, sessionId: row.id }, 'what is left of an ended session was not removed')
  }
}

async function removeFolder({ disk, dataDir, log }: SessionDeps, id: string): Promise<void> {
  await disk
    .remove(sessionDirs(dataDir, id))
    .catch((error: unknown) => log.error({ err: error, folder: id }, 'a folder was not removed'))
}

/** At the same time: more would only wait for the disk. */
const MAX_SAVED_AT_ONCE = 4

/** Saves what is not saved yet. What is not done in time is left: the files themselves stay where they are. */
async function saveAll(deps: SessionDeps, sessions: LiveSession[], deadlineMs: number): Promise<void> {
  const rest = sessions.filter(({ turn, isPaused }) => !turn && !isPaused).values()
  let isLate = false
  const save = async () => {
    for (const live of rest) {
      if (isLate) return
      const about = { reason: 'pause' as const, seq: live.log.lastSeq, staysFrozen: true }
      await saveLive(deps, live, about).catch((error: unknown) => noteUnsaved(deps, live.fence, error))
    }
  }
  const saved = Promise.all(Array.from({ length: MAX_SAVED_AT_ONCE }, save))
  const late = new Promise((resolve) => setTimeout(resolve, deadlineMs).unref())
  await Promise.race([saved, late])
  isLate = true
}

/** Gives running turns until the deadline, then stops every sandbox. Sessions are `paused` afterwards. */
export async function stopSessions(deps: SessionDeps, deadlineMs: number): Promise<void> {
  const sessions = await deps.live.close()
  const turns = Promise.allSettled(sessions.map((live) => live.turn?.ended))
  await Promise.race([turns, new Promise((resolve) => setTimeout(resolve, deadlineMs).unref())])
  await saveAll(deps, sessions, deadlineMs)
  await Promise.race([deps.writes.flush(), new Promise((resolve) => setTimeout(resolve, deadlineMs).unref())])
  const mine = sessions.filter((live) => deps.live.release(live))
  for (const live of mine) await endPermissions(deps, live, SERVER_STOPPED)
  // Before the sandboxes go, so that a turn cut off here says why and not that its sandbox died.
  const reason = new AshError('interrupted', 'The server stopped during this turn')
  for (const live of mine) live.sandbox.bridge.close(reason)
  await deps.pool.stopAll()
  // Asked again: a message that found its session awake may have begun a turn meanwhile.
  await Promise.allSettled(sessions.map((live) => live.turn?.ended))
  await deps.waiting.settled()
  for (const live of mine) {
    const { tenantId, sessionId } = live.fence
    await live.storing
    // Left as it is where the end of its turn could not be stored: the next start stores it.
    if ((await findOpenTurn(deps.db, tenantId, sessionId)) !== undefined) continue
    await moveSession(deps.db, live.fence, 'paused', { sandbox_id: null })
      .then(() => noteStatus(deps, live.fence, 'paused'))
      .catch(ignoreConflict)
  }
}
