import { setImmediate as nextPhase } from 'node:timers/promises'
import { AshError } from '@ash-ai/shared'
import type { LiveSession } from './live-sessions.ts'
import type { SessionDeps } from './session-deps.ts'
import { noteStatus } from './session-notes.ts'
import { type Fence, moveSession, type SessionRow } from './session-queries.ts'
import { storeEventually } from './store-eventually.ts'

/**
 * A session that was paused and kept its sandbox goes on where it was. Nobody waits until that is stored: should the
 * server die first, the session is paused afterwards, as every session of a server that died.
 */
export function thawSession(deps: SessionDeps, live: LiveSession, { owner_id, epoch }: SessionRow): void {
  if (owner_id !== live.fence.ownerId || epoch !== live.fence.epoch) throw takenOver(live.fence)
  live.sandbox.thaw()
  live.isPaused = false
  live.isLeaving = false
  live.cameBy = 'warm'
  deps.metrics.resumes.inc({ path: 'warm' })
  live.storing = storeThaw(deps, live).finally(() => {
    live.storing = undefined
  })
}

async function storeThaw(deps: SessionDeps, { fence, sandbox }: LiveSession): Promise<void> {
  await nextPhase() // In which whoever asked for it has been answered.
  const isStored =
    (await storeEventually(deps, () => moveSession(deps.db, fence, 'active', {}, ['active', 'paused']))) &&
    (await storeEventually(deps, () => noteStatus(deps, fence, 'active')))
  // What a host may not change, it may not go on with either.
  if (!isStored && !deps.live.isClosed) sandbox.bridge.close(takenOver(fence))
}

const takenOver = ({ sessionId }: Fence) =>
  new AshError('session_conflict', `Session ${sessionId} cannot go on here any more`)
