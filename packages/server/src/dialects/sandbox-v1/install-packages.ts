import type { Packages } from '@ash-ai/shared'
import { installPackages } from '../../packages/install-packages.ts'
import { listPackages } from '../../packages/list-packages.ts'
import { assertPersistent, getOpenSession } from '../../sessions/open-session.ts'
import type { SessionDeps } from '../../sessions/session-deps.ts'
import { indexHosts } from './dependencies.ts'

/** Below what proxies and clients wait for an answer. */
const TIMEOUT_MS = 290_000

/** Adds packages to a session, one installation at a time; says what it has then. The index can be reached meanwhile. */
export async function addPackages(
  deps: SessionDeps,
  { tenantId, sessionId }: { tenantId: string; sessionId: string },
  packages: Packages,
): Promise<{ name: string; version: string }[]> {
  await getOpenSession(deps.db, tenantId, sessionId)
  await assertPersistent(deps, tenantId, sessionId)
  const openHosts = indexHosts(deps.install.indexes)
  const target = { tenantId, sessionId, packages, timeoutMs: TIMEOUT_MS, openHosts }
  await deps.installs.begin(sessionId, packages, () => installPackages(deps, target)).ended
  return (await listPackages(deps, tenantId, sessionId)).pip
}
