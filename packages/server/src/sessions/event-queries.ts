import { AshError, type EventType } from '@ash-ai/shared'
import { type RawBuilder, sql } from 'kysely'
import type { Db } from '../db/open-db.ts'
import type { Fence } from './session-queries.ts'

/** An entry of the log. `data` is JSON text and is never parsed again. */
export interface Entry {
  seq: number
  type: EventType
  turnId: string | null
  data: string
  createdAt: number
}

/** Appends entries if this host still owns the session. All or none. */
export async function insertEvents(db: Db, fence: Fence, entries: Entry[]): Promise<void> {
  const rows = entries.map((entry) => eventRow(fence, entry))
  const { numAffectedRows } = await sql`
    insert into session_events (tenant_id, session_id, seq, type, turn_id, data, created_at)
    ${sql.join(rows, sql` union all `)}`.execute(db)
  if (numAffectedRows !== BigInt(entries.length)) {
    throw new AshError('session_conflict', `Session ${fence.sessionId} belongs to another host now`)
  }
}

/** The casts give both databases the same column types in a `select` without a table. */
function eventRow(fence: Fence, { seq, type, turnId, data, createdAt }: Entry): RawBuilder<unknown> {
  return sql`select cast(${fence.tenantId} as text), cast(${fence.sessionId} as text), cast(${seq} as bigint),
    cast(${type} as text), cast(${turnId} as text), cast(${data} as text), cast(${createdAt} as bigint)
    where exists (select 1 from sessions where tenant_id = ${fence.tenantId} and id = ${fence.sessionId}
      and owner_id = ${fence.ownerId} and epoch = ${fence.epoch})`
}

export interface EventPage {
  after: number
  limit: number
  types?: readonly EventType[]
}

export async function listEvents(
  db: Db,
  tenantId: string,
  sessionId: string,
  page: EventPage,
): Promise<Entry[]> {
  let query = db
    .selectFrom('session_events')
    .select(['seq', 'type', 'turn_id', 'data', 'created_at'])
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where('seq', '>', page.after)
  if (page.types) query = query.where('type', 'in', page.types)
  const rows = await query.orderBy('seq').limit(page.limit).execute()
  return rows.map((row) => ({
    seq: row.seq,
    type: row.type as EventType,
    turnId: row.turn_id,
    data: row.data,
    createdAt: row.created_at,
  }))
}

export async function findLastSeq(db: Db, tenantId: string, sessionId: string): Promise<number> {
  const row = await db
    .selectFrom('session_events')
    .select('seq')
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst()
  return row?.seq ?? 0
}

/** The turn that was begun and neither done nor failed, if there is one. */
export async function findOpenTurn(db: Db, tenantId: string, sessionId: string): Promise<string | undefined> {
  const last = await db
    .selectFrom('session_events')
    .select(['type', 'turn_id'])
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where('type', 'in', ['turn', 'done', 'error'])
    .where('turn_id', 'is not', null)
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst()
  return last?.type === 'turn' ? (last.turn_id ?? undefined) : undefined
}
