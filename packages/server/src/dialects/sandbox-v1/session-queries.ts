import { AshError } from '@ash-ai/shared'
import { sql } from 'kysely'
import type { Db } from '../../db/open-db.ts'
import { type SessionRow, sessionNotFound } from '../../sessions/session-queries.ts'
import type { V1SessionList, V1SessionStatus } from './session-schemas.ts'

/** A session with its name in the dialect, and the dialect's word for how it stands. */
export type V1SessionRow = SessionRow & { external_id: string | null; v1_status: V1SessionStatus }

/** What takes executions runs, asleep or not. A session for a single run ends as the run did. */
const v1Status = sql<V1SessionStatus>`case
  when sessions.status = 'starting' then 'creating'
  when sessions.status in ('active', 'paused') then 'running'
  when sessions.status = 'error' then 'failed'
  when sessions.mode = 'ephemeral' then coalesce(case (
    select executions.status from executions where executions.session_id = sessions.id
    order by executions.created_at desc, executions.id desc limit 1)
    when 'completed' then 'completed' when 'timeout' then 'timeout'
    when 'failed' then 'failed' when 'crashed' then 'failed' end, 'terminated')
  else 'terminated' end`

const externalId = sql.ref<string | null>('sessions.external_id')

/** By the name that its client chose, or by our id. */
export async function getV1Session(db: Db, tenantId: string, id: string): Promise<V1SessionRow> {
  const found = await db
    .selectFrom('sessions')
    .selectAll()
    .select([externalId.as('external_id'), v1Status.as('v1_status')])
    .where('sessions.tenant_id', '=', tenantId)
    .where((session) => session.or([session('sessions.id', '=', id), session(externalId, '=', id)]))
    // Ours first: nobody hides a session by calling another by its id.
    .orderBy((session) => session.case().when('sessions.id', '=', id).then(0).else(1).end())
    .limit(1)
    .executeTakeFirst()
  if (!found) throw sessionNotFound(id)
  return found
}

/** Those that run code, newest first. One that was deleted has no name any more, and is not among them. */
export async function listV1Sessions(
  db: Db,
  tenantId: string,
  { status, template_id, limit, offset }: V1SessionList,
): Promise<{ rows: V1SessionRow[]; total: number }> {
  let query = db
    .selectFrom('sessions')
    .where('sessions.tenant_id', '=', tenantId)
    .where('template', 'is not', null)
    .where((session) =>
      session.or([session('sessions.status', '!=', 'ended'), session(externalId, 'is not', null)]),
    )
  if (template_id !== undefined) query = query.where('template', '=', template_id)
  if (status !== undefined) query = query.where(v1Status, '=', status)
  const { total } = await query
    .select(({ fn }) => fn.countAll<string | number>().as('total'))
    .executeTakeFirstOrThrow()
  const rows = await query
    .selectAll()
    .select([externalId.as('external_id'), v1Status.as('v1_status')])
    .orderBy('sessions.created_at', 'desc')
    .orderBy('sessions.id', 'desc')
    .limit(limit)
    .offset(offset)
    .execute()
  return { rows, total: Number(total) }
}

/** Throws `session_conflict` where a session of the tenant has that name, or that id. */
export async function assertFreeId(db: Db, tenantId: string, id: string): Promise<void> {
  const taken = await db
    .selectFrom('sessions')
    .select('id')
    .where('tenant_id', '=', tenantId)
    .where((session) => session.or([session('id', '=', id), session(externalId, '=', id)]))
    .executeTakeFirst()
  if (taken) throw new AshError('session_conflict', `There is a session ${id} already`)
}

/** Names a session, or takes its name away. Throws `session_conflict` where somebody was quicker. */
export async function setExternalId(
  db: Db,
  { tenant_id, id }: Pick<SessionRow, 'tenant_id' | 'id'>,
  name: string | null,
): Promise<void> {
  const change = db
    .updateTable('sessions')
    .set({ external_id: name })
    .where('tenant_id', '=', tenant_id)
    .where('id', '=', id)
  try {
    await change.execute()
  } catch (error) {
    // The databases say in different words that it is taken; so it is looked up.
    if (name !== null) await assertFreeId(db, tenant_id, name)
    throw error
  }
}
