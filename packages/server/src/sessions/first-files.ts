import { needsInstall } from '../agents/agent-install.ts'
import { hasFolders } from '../checkpoints/session-files.ts'
import { blueprintOf } from './blueprint-of.ts'
import { getOpenSession } from './open-session.ts'
import type { SessionDeps } from './session-deps.ts'
import { useSession } from './session-wake.ts'

/**
 * Before files are put into a session for one execution, which may have no folders yet: where packages belong in them, a
 * sandbox makes them. Empty ones need none.
 */
export async function prepareForFiles(deps: SessionDeps, tenantId: string, sessionId: string): Promise<void> {
  if (deps.live.get(sessionId)) return
  const row = await getOpenSession(deps.db, tenantId, sessionId)
  if (row.mode !== 'ephemeral' || row.files_pending !== 0 || (await hasFolders(deps, sessionId))) return
  if (await needsInstall(await blueprintOf(deps, row)))
    await useSession(deps, tenantId, sessionId, async () => {}, { isResume: true })
}
