import { AshError, type ExecutionStatus } from '@ash-ai/shared'
import { type Selectable, sql } from 'kysely'
import { parseCursor, toPage } from '../db/newest-first.ts'
import type { Db } from '../db/open-db.ts'
import type { ExecutionsTable } from '../db/tables.ts'
import { getSession } from '../sessions/session-queries.ts'

export type ExecutionRow = Selectable<ExecutionsTable>
/** Without what may be large. */
export type ExecutionSummaryRow = Omit<
  ExecutionRow,
  'code' | 'input_sealed' | 'result' | 'results' | 'request_hash'
> & { has_result: number }

/** False where the key belongs to another execution of the tenant already. */
export async function insertExecution(db: Db, row: ExecutionRow): Promise<boolean> {
  const inserted = await db
    .insertInto('executions')
    .values(row)
    .onConflict((conflict) => conflict.columns(['tenant_id', 'idempotency_key']).doNothing())
    .returning('id')
    .executeTakeFirst()
  return inserted !== undefined
}

/** What a change of status may bring with it. */
export type ExecutionChange = Partial<
  Omit<ExecutionRow, 'id' | 'tenant_id' | 'session_id' | 'owner_id' | 'code' | 'created_at'>
>

/**
 * Changes an execution if it still is what `row` says: status, attempt and owner. One statement, so that the
 * database decides every race. False where it lost.
 */
export async function moveExecution(
  db: Db,
  row: Pick<ExecutionRow, 'id' | 'tenant_id' | 'owner_id' | 'status' | 'attempt'>,
  change: ExecutionChange,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('executions')
    .set(change)
    .where('tenant_id', '=', row.tenant_id)
    .where('id', '=', row.id)
    .where('owner_id', '=', row.owner_id)
    .where('status', '=', row.status)
    .where('attempt', '=', row.attempt)
    .executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}

/** For an execution that was refused before anything of it ran. */
export async function deleteExecution(
  db: Db,
  { tenant_id, id }: Pick<ExecutionRow, 'tenant_id' | 'id'>,
): Promise<void> {
  await db.deleteFrom('executions').where('tenant_id', '=', tenant_id).where('id', '=', id).execute()
}

export async function getExecution(
  db: Db,
  tenantId: string,
  sessionId: string,
  id: string,
): Promise<ExecutionRow> {
  const row = await db
    .selectFrom('executions')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where('id', '=', id)
    .executeTakeFirst()
  if (row) return row
  await getSession(db, tenantId, sessionId) // Throws where even that is not there.
  throw new AshError('execution_not_found', `Session ${sessionId} has no execution ${id}`)
}

export async function findExecutionByKey(
  db: Db,
  tenantId: string,
  key: string,
): Promise<ExecutionRow | undefined> {
  return db
    .selectFrom('executions')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .where('idempotency_key', '=', key)
    .executeTakeFirst()
}

export async function hasExecutions(db: Db, tenantId: string, sessionId: string): Promise<boolean> {
  const row = await db
    .selectFrom('executions')
    .select('id')
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .limit(1)
    .executeTakeFirst()
  return row !== undefined
}

const SUMMARY_COLUMNS = [
  'id',
  'tenant_id',
  'session_id',
  'owner_id',
  'status',
  'language',
  'kind',
  'kernel',
  'retries',
  'timeout_ms',
  'attempt',
  'path',
  'is_new_kernel',
  'error',
  'exit_code',
  'signal',
  'truncated',
  'artifacts',
  'artifacts_complete',
  'artifacts_until',
  'artifacts_bytes',
  'metrics',
  'idempotency_key',
  'created_at',
  'started_at',
  'finished_at',
] as const satisfies (keyof ExecutionRow)[]

export interface ExecutionPage {
  status?: ExecutionStatus | undefined
  /** Only those that left files. */
  hasArtifacts?: boolean
  limit: number
  cursor?: string | undefined
}

/** Of one session, newest first. The cursor is the place of the last row of the page before. */
export async function listExecutions(
  db: Db,
  tenantId: string,
  sessionId: string,
  { status, hasArtifacts, limit, cursor }: ExecutionPage,
): Promise<{ rows: ExecutionSummaryRow[]; nextCursor: string | undefined }> {
  let query = db
    .selectFrom('executions')
    .select(SUMMARY_COLUMNS)
    .select(sql<number>`case when result is null then 0 else 1 end`.as('has_result'))
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
  if (status !== undefined) query = query.where('status', '=', status)
  if (hasArtifacts) query = query.where('artifacts', 'is not', null)
  if (cursor !== undefined) {
    const place = parseCursor(cursor)
    query = query.where((where) =>
      where.or([
        where('created_at', '<', place.createdAt),
        where.and([where('created_at', '=', place.createdAt), where('id', '<', place.id)]),
      ]),
    )
  }
  const rows = await query
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(limit + 1)
    .execute()
  return toPage(rows, limit)
}

/** What a host had not brought to its end, in the order in which it came. */
export async function listOpenExecutions(db: Db, ownerId: string): Promise<ExecutionRow[]> {
  return db
    .selectFrom('executions')
    .selectAll()
    .where('owner_id', '=', ownerId)
    .where('finished_at', 'is', null)
    .orderBy('created_at')
    .orderBy('id')
    .execute()
}

/** How an execution stands, as the log tells of it. */
const STATE_COLUMNS = ['id', 'tenant_id', 'session_id', 'status', 'attempt', 'language', 'error'] as const

/** What a host brought to an end last: within so much time of the newest, the newest first. */
export async function listLastFinished(
  db: Db,
  ownerId: string,
  withinMs: number,
  limit: number,
): Promise<Pick<ExecutionRow, (typeof STATE_COLUMNS)[number]>[]> {
  const finished = db
    .selectFrom('executions')
    .where('owner_id', '=', ownerId)
    .where('finished_at', 'is not', null)
    .orderBy('finished_at', 'desc')
  const newest = await finished.select('finished_at').limit(1).executeTakeFirst()
  if (!newest) return []
  return finished
    .select(STATE_COLUMNS)
    .where('finished_at', '>=', (newest.finished_at ?? 0) - withinMs)
    .limit(limit)
    .execute()
}

/** Of files that runs of a session left, as far as they are kept. */
export async function sumKeptBytes(db: Db, tenantId: string, sessionId: string): Promise<number> {
  const { bytes } = await db
    .selectFrom('executions')
    .select((row) => row.fn.sum<number | string | null>('artifacts_bytes').as('bytes'))
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where('artifacts_until', 'is not', null)
    .executeTakeFirstOrThrow()
  return Number(bytes ?? 0)
}

/** Sessions for one run that have had it, and are still there. */
export async function listSpentSessions(
  db: Db,
  ownerId: string,
): Promise<{ tenantId: string; sessionId: string }[]> {
  return db
    .selectFrom('sessions')
    .select(['tenant_id as tenantId', 'id as sessionId'])
    .where('owner_id', '=', ownerId)
    .where('mode', '=', 'ephemeral')
    .where('status', '!=', 'ended')
    .where((where) =>
      where.exists(
        where
          .selectFrom('executions')
          .select('executions.id')
          .whereRef('executions.session_id', '=', 'sessions.id')
          .where('executions.finished_at', 'is not', null),
      ),
    )
    .execute()
}

/** Executions of a host whose files have been kept for long enough. */
export async function listExpiredArtifacts(
  db: Db,
  ownerId: string,
  now: number,
  limit: number,
): Promise<{ tenantId: string; id: string }[]> {
  return db
    .selectFrom('executions')
    .select(['tenant_id as tenantId', 'id'])
    .where('owner_id', '=', ownerId)
    .where('artifacts_until', 'is not', null)
    .where('artifacts_until', '<=', now)
    .orderBy('artifacts_until')
    .limit(limit)
    .execute()
}

/** The files are gone; that they were there can still be read. */
export async function forgetArtifacts(db: Db, tenantId: string, id: string): Promise<void> {
  await db
    .updateTable('executions')
    .set({ artifacts_until: null, artifacts_bytes: null })
    .where('tenant_id', '=', tenantId)
    .where('id', '=', id)
    .execute()
}

/** Of these, the executions whose files are to be kept, or that are not over. */
export async function listKeptIds(db: Db, tenantId: string, ids: readonly string[]): Promise<Set<string>> {
  const rows = await db
    .selectFrom('executions')
    .select('id')
    .where('tenant_id', '=', tenantId)
    .where('id', 'in', ids)
    .where((where) => where.or([where('artifacts_until', 'is not', null), where('finished_at', 'is', null)]))
    .execute()
  return new Set(rows.map(({ id }) => id))
}
