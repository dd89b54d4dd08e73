import type { Socket } from 'node:net'
import { asGuest } from '../sessions/live-sessions.ts'
import { assertPersistent, getOpenSession } from '../sessions/open-session.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { useSession } from '../sessions/session-wake.ts'
import type { PreviewTarget } from './preview-address.ts'
import { isAsleep, nothingListens } from './preview-refusal.ts'

/**
 * Connects to a port of a session and hands the connection to `work`. Until that ends the session is at work: it is
 * neither idle nor evicted. When somebody pauses or ends it, the connection is cut.
 */
export async function withTunnel(
  deps: SessionDeps,
  { tenantId, mayWake }: { tenantId: string; mayWake: boolean },
  target: PreviewTarget,
  work: (tunnel: Socket) => Promise<void>,
): Promise<void> {
  const { sessionId, port } = target
  // One that is awake is used before anything else can happen to it.
  if (!deps.live.awake(sessionId)) await assertServes(deps, tenantId, sessionId, mayWake)
  await useSession(deps, tenantId, sessionId, async (live) => {
    // The sandbox stands still while files are saved.
    await live.saving
    const tunnel = await live.sandbox.openTunnel(port)
    if (!tunnel) throw nothingListens(target)
    const cut = () => void tunnel.destroy()
    await asGuest(live, cut, () => work(tunnel)).finally(cut)
  })
}

async function assertServes(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  mayWake: boolean,
): Promise<void> {
  const { status } = await getOpenSession(deps.db, tenantId, sessionId)
  await assertPersistent(deps, tenantId, sessionId)
  const sleeps = status === 'paused' || status === 'error'
  if (sleeps && !mayWake) throw isAsleep(sessionId, status)
}
