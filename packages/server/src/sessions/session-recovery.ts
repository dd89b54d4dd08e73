import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { sessionDirs } from '@ash-ai/sandbox'
import { AshError, type ErrorEventData } from '@ash-ai/shared'
import { findOpenTurn } from './event-queries.ts'
import { endPermissions, expireLostPermissions, SERVER_STOPPED } from './permissions.ts'
import type { SessionDeps } from './session-deps.ts'
import { noteStatus } from './session-notes.ts'
import {
  type Fence,
  fenceOf,
  freeUid,
  ignoreConflict,
  listOwnedIds,
  moveSession,
  reclaimSessions,
} from './session-queries.ts'

/**
 * After a stop of any kind: sessions that were live are paused, their open turns get a typed end, and nothing of
 * an old sandbox remains. Their processes died with the old server.
 */
export async function recoverSessions(deps: SessionDeps): Promise<number> {
  const reclaimed = await reclaimSessions(deps.db, deps.hostId)
  for (const row of reclaimed) {
    await endOpenTurn(deps, fenceOf(row))
    await noteStatus(deps, fenceOf(row), 'paused')
  }
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

async function removeLeftovers(deps: SessionDeps): Promise<void> {
  const { db, dataDir, hostId } = deps
  const kept = await listOwnedIds(db, hostId)
  const root = join(dataDir, 'sandboxes')
  for (const id of await readdir(root).catch(() => [])) {
    const { run } = sessionDirs(dataDir, id)
    await (kept.has(id) ? rm(run, { recursive: true, force: true }) : finishEnding(deps, id))
  }
}

/** Folders of a session that is not kept: the server was killed while it ended that one. */
async function finishEnding(deps: SessionDeps, sessionId: string): Promise<void> {
  const { db, dataDir, hostId, disk } = deps
  const owned = db.selectFrom('sessions').selectAll().where('owner_id', '=', hostId)
  const row = await owned.where('id', '=', sessionId).executeTakeFirst()
  if (row) await endOpenTurn(deps, fenceOf(row))
  await disk.remove(sessionDirs(dataDir, sessionId))
  if (!row) return
  await freeUid(db, fenceOf(row))
  await noteStatus(deps, fenceOf(row), 'ended')
}

/** Gives running turns until the deadline, then stops every sandbox. Sessions are `paused` afterwards. */
export async function stopSessions(deps: SessionDeps, deadlineMs: number): Promise<void> {
  const sessions = await deps.live.close()
  const turns = Promise.allSettled(sessions.map((live) => live.turn?.ended))
  await Promise.race([turns, new Promise((resolve) => setTimeout(resolve, deadlineMs).unref())])
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
    // Left as it is where the end of its turn could not be stored: the next start stores it.
    if ((await findOpenTurn(deps.db, tenantId, sessionId)) !== undefined) continue
    await moveSession(deps.db, live.fence, 'paused', { sandbox_id: null })
      .then(() => noteStatus(deps, live.fence, 'paused'))
      .catch(ignoreConflict)
  }
}
