import type { Packages } from '@ash-ai/shared'
import { installPackages } from '../../packages/install-packages.ts'
import { listPackages } from '../../packages/list-packages.ts'
import type { PackageInstalls } from '../../packages/package-installs.ts'
import { assertPersistent, getOpenSession } from '../../sessions/open-session.ts'
import type { SessionDeps } from '../../sessions/session-deps.ts'

/** Below what proxies and clients wait for an answer. */
const TIMEOUT_MS = 290_000

/** Adds packages to a session, one installation at a time; says what it has then. */
export async function addPackages(
  deps: SessionDeps,
  installs: PackageInstalls,
  { tenantId, sessionId }: { tenantId: string; sessionId: string },
  packages: Packages,
): Promise<{ name: string; version: string }[]> {
  await getOpenSession(deps.db, tenantId, sessionId)
  await assertPersistent(deps, tenantId, sessionId)
  const target = { tenantId, sessionId, packages, timeoutMs: TIMEOUT_MS }
  await installs.begin(sessionId, packages, () => installPackages(deps, target)).ended
  return (await listPackages(deps, tenantId, sessionId)).pip
}
