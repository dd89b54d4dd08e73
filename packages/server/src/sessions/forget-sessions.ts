import { setImmediate as letOthersRun } from 'node:timers/promises'
import { sql } from 'kysely'
import type { Db } from '../db/open-db.ts'
import { removeArtifacts } from '../executions/artifact-store.ts'
import { findLogEnd } from './event-queries.ts'
import type { SessionDeps } from './session-deps.ts'

const DAY_MS = 86_400_000
const SESSIONS_AT_ONCE = 100
/** Of a log: whoever else writes waits meanwhile. */
const ENTRIES_AT_ONCE = 500

type ForgetDeps = Pick<SessionDeps, 'db' | 'dataDir' | 'hostId'> & {
  retention: Pick<SessionDeps['retention'], 'sessionDays'>
}

interface SessionOf {
  tenantId: string
  id: string
}

/**
 * Deletes sessions for one run that ended long enough ago, with their executions, log and files. What somebody made to
 * stay is deleted by nobody but them. Says how many there were.
 */
export async function forgetSessions(
  deps: ForgetDeps,
  { signal, now = Date.now() }: { signal?: AbortSignal; now?: number } = {},
): Promise<number> {
  const before = now - deps.retention.sessionDays * DAY_MS
  for (let count = 0; ; ) {
    const spent = await listSpent(deps.db, deps.hostId, before)
    for (const session of spent) {
      if (signal?.aborted) return count
      await forget(deps, session)
      count++
    }
    if (spent.length < SESSIONS_AT_ONCE) return count
  }
}

/** What is left to be cleared up, or has become the beginning of another, stays. */
async function listSpent(db: Db, ownerId: string, before: number): Promise<SessionOf[]> {
  return (
    db
      .selectFrom('sessions')
      .select(['tenant_id as tenantId', 'id'])
      .where('owner_id', '=', ownerId)
      // Literals: only then the index over them is used.
      .where('mode', '=', sql.lit('ephemeral'))
      .where('status', '=', sql.lit('ended'))
      .where('ended_at', '<', before)
      .where('host_uid', 'is', null)
      .where((where) =>
        where.not(
          where.exists(
            where
              .selectFrom('sessions as fork')
              .select('fork.id')
              .whereRef('fork.parent_session_id', '=', 'sessions.id'),
          ),
        ),
      )
      .orderBy('ended_at')
      .limit(SESSIONS_AT_ONCE)
      .execute()
  )
}

async function forget({ db, dataDir }: ForgetDeps, { tenantId, id }: SessionOf): Promise<void> {
  const executions = await db
    .selectFrom('executions')
    .select('id')
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', id)
    .execute()
  for (const execution of executions) await removeArtifacts({ dataDir }, tenantId, execution.id)
  const { seq } = await findLogEnd(db, tenantId, id)
  for (let upTo = ENTRIES_AT_ONCE; upTo < seq; upTo += ENTRIES_AT_ONCE) {
    await db
      .deleteFrom('session_events')
      .where('tenant_id', '=', tenantId)
      .where('session_id', '=', id)
      .where('seq', '<=', upTo)
      .execute()
    await letOthersRun()
  }
  // The rest goes with it.
  await db.deleteFrom('sessions').where('tenant_id', '=', tenantId).where('id', '=', id).execute()
}
