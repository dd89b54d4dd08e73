import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { sessionDirs } from '@ash-ai/sandbox'
import { AshError, type ErrorEventData } from '@ash-ai/shared'
import { findOpenTurn } from './event-queries.ts'
import { endPermissions, expireLostPermissions, SERVER_STOPPED } from './permissions.ts'
import type { SessionDeps } from './session-deps.ts'
import { noteStatus } from './session-notes.ts'
import { fenceOf, ignoreConflict, listOwnedIds, moveSession, reclaimSessions } from './session-queries.ts'

/**
 * After a stop of any kind: sessions that were live are paused, their open turns get a typed end, and nothing of
 * an old sandbox remains. Their processes died with the old server.
 */
export async function recoverSessions(deps: SessionDeps): Promise<number> {
  const reclaimed = await reclaimSessions(deps.db, deps.hostId)
  for (const row of reclaimed) {
    const turnId = await findOpenTurn(deps.db, row.tenant_id, row.id)
    if (turnId === undefined) continue
    const log = await deps.logs.get(fenceOf(row))
    await expireLostPermissions(deps, log, fenceOf(row), turnId)
    const data: ErrorEventData = {
      turnId,
      code: 'interrupted',
      error: 'The server stopped during this turn',
      retryable: true,
    }
    await log.append('error', turnId, JSON.stringify(data))
  }
  await removeLeftovers(deps)
  return reclaimed.length
}

async function removeLeftovers({ db, dataDir, hostId, disk }: SessionDeps): Promise<void> {
  const kept = await listOwnedIds(db, hostId)
  const root = join(dataDir, 'sandboxes')
  for (const id of await readdir(root).catch(() => [])) {
    const dirs = sessionDirs(dataDir, id)
    await (kept.has(id) ? rm(dirs.run, { recursive: true, force: true }) : disk.remove(dirs))
  }
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
  await turns
  await deps.waiting.settled()
  for (const live of mine) {
    await moveSession(deps.db, live.fence, 'paused', { sandbox_id: null })
      .then(() => noteStatus(deps, live.fence, 'paused'))
      .catch(ignoreConflict)
  }
}
