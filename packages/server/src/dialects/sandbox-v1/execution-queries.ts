import { AshError } from '@ash-ai/shared'
import { sql } from 'kysely'
import type { Db } from '../../db/open-db.ts'
import {
  type ExecutionRow,
  type ExecutionSummaryRow,
  listExecutions,
} from '../../executions/execution-queries.ts'
import type { V1ExecutionList } from './execution-schemas.ts'

/** An execution, and what the dialect calls its session. */
export type V1ExecutionRow = ExecutionRow & { external_id: string | null }

const of = (db: Db, tenantId: string) =>
  db
    .selectFrom('executions')
    .innerJoin('sessions', 'sessions.id', 'executions.session_id')
    .selectAll('executions')
    .select(sql.ref<string | null>('sessions.external_id').as('external_id'))
    .where('executions.tenant_id', '=', tenantId)

/** Of whichever session of the tenant that was not deleted. */
export async function getV1Execution(db: Db, tenantId: string, id: string): Promise<V1ExecutionRow> {
  const row = await of(db, tenantId)
    .where('executions.id', '=', id)
    .where((where) =>
      where.or([
        where('sessions.status', '!=', 'ended'),
        where(sql.ref('sessions.external_id'), 'is not', null),
      ]),
    )
    .executeTakeFirst()
  if (!row) throw new AshError('execution_not_found', `There is no execution ${id}`)
  return row
}

/** The newest of a session. */
export async function getLatestExecution(
  db: Db,
  tenantId: string,
  sessionId: string,
): Promise<V1ExecutionRow> {
  const row = await of(db, tenantId)
    .where('executions.session_id', '=', sessionId)
    .orderBy('executions.created_at', 'desc')
    .orderBy('executions.id', 'desc')
    .limit(1)
    .executeTakeFirst()
  if (!row) throw new AshError('execution_not_found', 'The session has had no execution yet')
  return row
}

/** Newest first, without what may be large. */
export async function listV1Executions(
  db: Db,
  tenantId: string,
  sessionId: string,
  { status, limit, offset }: V1ExecutionList,
): Promise<{ rows: ExecutionSummaryRow[]; total: number }> {
  let counted = db
    .selectFrom('executions')
    .select(({ fn }) => fn.countAll<string | number>().as('total'))
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
  if (status !== undefined) counted = counted.where('status', '=', status)
  const { total } = await counted.executeTakeFirstOrThrow()
  const { rows } = await listExecutions(db, tenantId, sessionId, { status, limit: offset + limit })
  return { rows: rows.slice(offset), total: Number(total) }
}
