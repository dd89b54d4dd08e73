import { cleanArtifacts } from '../executions/artifact-store.ts'
import { forgetSessions } from '../sessions/forget-sessions.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { pruneCheckpoints } from './checkpoint-queries.ts'
import { collectGarbage } from './garbage.ts'
import { retentionOf } from './save-checkpoint.ts'

/** From time to time forgets checkpoints and sessions that are too old, and deletes what none refers to. Returns what ends it. */
export function startHousekeeping(deps: SessionDeps, intervalMs: number): () => Promise<void> {
  let running: Promise<void> | undefined
  const ending = new AbortController()
  const timer = setInterval(() => {
    running ??= keepHouse(deps, ending.signal)
      .catch((error: unknown) => deps.log.error({ err: error }, 'old checkpoints were not cleared up'))
      .finally(() => {
        running = undefined
      })
  }, intervalMs).unref()
  return async () => {
    clearInterval(timer)
    ending.abort()
    await running
  }
}

async function keepHouse(deps: SessionDeps, signal: AbortSignal): Promise<void> {
  await pruneOld(deps)
  await forgetSessions(deps, { signal })
  await cleanArtifacts(deps)
  for (const tenantId of await listTenants(deps)) {
    if (signal.aborted) return
    await collectGarbage(deps, tenantId, { signal }).catch((error: unknown) =>
      deps.log.error({ err: error, tenantId }, 'files that no checkpoint needs were not deleted'),
    )
  }
}

/** How many are kept is seen to with each new one; how old they are, only time tells. */
async function pruneOld(deps: SessionDeps): Promise<void> {
  const sessions = await deps.db
    .selectFrom('sessions')
    .select(['tenant_id', 'id', 'checkpoint_settings'])
    .where('owner_id', '=', deps.hostId)
    .where('checkpoint_id', 'is not', null)
    .where('status', '!=', 'ended')
    .execute()
  for (const { tenant_id: tenantId, id: sessionId, ...session } of sessions) {
    const rules = retentionOf(deps, session)
    if (rules.keepDays === undefined) continue
    await deps.live.exclusive(sessionId, () => pruneCheckpoints(deps.db, { tenantId, sessionId }, rules))
  }
}

/** One without checkpoints may still have files of those that it had. */
async function listTenants({ db }: SessionDeps): Promise<string[]> {
  const tables = ['sessions', 'api_keys'] as const
  const rows = await Promise.all(
    tables.map((table) => db.selectFrom(table).select('tenant_id').distinct().execute()),
  )
  return [...new Set(rows.flat().map(({ tenant_id }) => tenant_id))]
}
