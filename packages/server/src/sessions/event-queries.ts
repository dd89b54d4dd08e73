import { AshError, type EventType } from '@ash-ai/shared'
import { type CompiledQuery, sql } from 'kysely'
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
  const query = insertQuery(db, entries.length)
  const parameters = entries.flatMap((entry) => eventParameters(fence, entry))
  const { numAffectedRows } = await db.executeQuery({ ...query, parameters })
  if (numAffectedRows !== BigInt(entries.length)) {
    throw new AshError('session_conflict', `Session ${fence.sessionId} belongs to another host now`)
  }
}

/** By number of rows: building the same text for every message would cost more than storing it. */
const insertQueries = new WeakMap<Db, Map<number, CompiledQuery>>()

function insertQuery(db: Db, rows: number): CompiledQuery {
  const known = insertQueries.get(db) ?? new Map<number, CompiledQuery>()
  insertQueries.set(db, known)
  const query = known.get(rows) ?? compileInsert(db, rows)
  known.set(rows, query)
  return query
}

function compileInsert(db: Db, rows: number): CompiledQuery {
  // The casts give both databases the same column types in a `select` without a table.
  const row = sql`select cast(${''} as text), cast(${''} as text), cast(${0} as bigint), cast(${''} as text),
    cast(${''} as text), cast(${''} as text), cast(${0} as bigint) where exists (select 1 from sessions
    where tenant_id = ${''} and id = ${''} and owner_id = ${''} and epoch = ${0})`
  return sql`insert into session_events (tenant_id, session_id, seq, type, turn_id, data, created_at)
    ${sql.join(Array(rows).fill(row), sql` union all `)}`.compile(db)
}

/** In the order of the placeholders above. */
function eventParameters(fence: Fence, { seq, type, turnId, data, createdAt }: Entry): unknown[] {
  const { tenantId, sessionId, ownerId, epoch } = fence
  return [tenantId, sessionId, seq, type, turnId, data, createdAt, tenantId, sessionId, ownerId, epoch]
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
