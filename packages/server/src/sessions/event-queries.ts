import { AshError, type EventType } from '@ash-ai/shared'
import { type CompiledQuery, type SelectQueryBuilder, sql } from 'kysely'
import { changeRows, type Db } from '../db/open-db.ts'
import type { Tables } from '../db/tables.ts'
import type { Fence } from './session-queries.ts'

/** An entry of the log. `data` is JSON text and is never parsed again. */
export interface Entry {
  seq: number
  type: EventType
  turnId: string | null
  data: string
  createdAt: number
}

/** Entries that become durable together; they follow `end`, where the log ended before. */
export interface EventBatch {
  end: LogEnd
  createdAt: number
  entries: { type: EventType; turnId: string | null; data: string }[]
}

/** How far a log goes: its last `seq`, and the length of all data that the session itself has stored. */
export interface LogEnd {
  seq: number
  totalChars: number
}

/** Appends entries if this host still owns the session. All or none. Says where the log ends then. */
export async function insertEvents(db: Db, fence: Fence, batch: EventBatch): Promise<LogEnd> {
  const { tenantId, sessionId, ownerId, epoch } = fence
  const parameters: unknown[] = [tenantId, sessionId, batch.createdAt]
  let { seq, totalChars } = batch.end
  for (const { type, turnId, data } of batch.entries) {
    seq++
    totalChars += data.length
    parameters.push(seq, type, turnId, data, totalChars)
  }
  parameters.push(tenantId, sessionId, ownerId, epoch)
  const query = insertQuery(db, batch.entries.length)
  if ((await changeRows(db, query, parameters)) !== batch.entries.length) {
    throw new AshError('session_conflict', `Session ${sessionId} belongs to another host now`)
  }
  return { seq, totalChars }
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

/** Both databases call the columns of a `values` list column1, column2 …; the casts give them their types. */
function compileInsert(db: Db, rows: number): CompiledQuery {
  const row = sql`(${0}, ${''}, ${''}, ${''}, ${0})`
  return sql`insert into session_events
    (tenant_id, session_id, created_at, seq, type, turn_id, data, total_chars)
    select cast(${''} as text), cast(${''} as text), cast(${0} as bigint), cast(column1 as bigint),
    cast(column2 as text), cast(column3 as text), cast(column4 as text), cast(column5 as bigint)
    from (values ${sql.join(Array(rows).fill(row))}) as entry where exists (select 1 from sessions
    where tenant_id = ${''} and id = ${''} and owner_id = ${''} and epoch = ${0})`.compile(db)
}

export interface EventPage {
  after: number
  /** The last place of interest; without it, the end of the log. */
  upTo?: number | undefined
  limit: number
  types?: readonly EventType[] | undefined
  turnId?: string | undefined
}

/** Of one page: a log may hold entries of many megabytes, and its readers are many. */
export const PAGE_MAX_CHARS = 1024 * 1024

/**
 * Entries after a place, in order: at most `limit`, and about `maxChars`, but at least one if there is any. Only
 * what the session wrote itself; `listLogEvents` also has what a fork took over.
 */
export async function listEvents(
  db: Db,
  tenantId: string,
  sessionId: string,
  page: EventPage,
  maxChars: number = PAGE_MAX_CHARS,
): Promise<Entry[]> {
  const query = selectEvents(db, tenantId, sessionId, page)
  const first = await query.select('total_chars').limit(1).executeTakeFirst()
  if (!first) return []
  const rows = await query
    .select(['seq', 'type', 'turn_id', 'data', 'created_at'])
    .where((where) =>
      where.or([
        where('total_chars', 'is', null),
        where('total_chars', '<=', (first.total_chars ?? 0) + maxChars),
      ]),
    )
    .limit(page.limit)
    .execute()
  return rows.map((row) => ({
    seq: row.seq,
    type: row.type as EventType,
    turnId: row.turn_id,
    data: row.data,
    createdAt: row.created_at,
  }))
}

/** Whether the session itself wrote any of these. */
export async function hasEvents(
  db: Db,
  tenantId: string,
  sessionId: string,
  page: Omit<EventPage, 'limit'>,
): Promise<boolean> {
  const query = selectEvents(db, tenantId, sessionId, page).select('seq').limit(1)
  return (await query.executeTakeFirst()) !== undefined
}

function selectEvents(
  db: Db,
  tenantId: string,
  sessionId: string,
  { after, upTo, types, turnId }: Omit<EventPage, 'limit'>,
): SelectQueryBuilder<Tables, 'session_events', object> {
  let query = db
    .selectFrom('session_events')
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where('seq', '>', after)
    .orderBy('seq')
  if (upTo !== undefined) query = query.where('seq', '<=', upTo)
  if (types) query = query.where('type', 'in', types)
  if (turnId !== undefined) query = query.where('turn_id', '=', turnId)
  return query
}

/** Where the log ends, and the last place that it took over from another session: 0 where it is no fork. */
export async function findLogEnd(
  db: Db,
  tenantId: string,
  sessionId: string,
): Promise<LogEnd & { forkSeq: number }> {
  const row = await db
    .selectFrom('sessions')
    .select((session) => {
      const last = session
        .selectFrom('session_events')
        .where('session_events.tenant_id', '=', tenantId)
        .where('session_id', '=', sessionId)
        .orderBy('seq', 'desc')
        .limit(1)
      return ['fork_seq', last.select('seq').as('seq'), last.select('total_chars').as('total_chars')]
    })
    .where('tenant_id', '=', tenantId)
    .where('id', '=', sessionId)
    .executeTakeFirst()
  const forkSeq = row?.fork_seq ?? 0
  return { seq: row?.seq ?? forkSeq, totalChars: row?.total_chars ?? 0, forkSeq }
}

/** Place of the entry that begins the turn, if it has begun. A fork knows nothing of its parent's turns here. */
export async function findTurnStart(
  db: Db,
  tenantId: string,
  sessionId: string,
  turnId: string,
): Promise<number | undefined> {
  const row = await db
    .selectFrom('session_events')
    .select('seq')
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where('turn_id', '=', turnId)
    .where('type', '=', sql.lit('turn'))
    .executeTakeFirst()
  return row?.seq
}

const MAX_TURNS_LISTED = 10_000

/** The turns that the session itself began between two places, the oldest first. */
export async function listTurnStarts(
  db: Db,
  tenantId: string,
  sessionId: string,
  { after, upTo }: { after: number; upTo: number },
): Promise<{ turnId: string; seq: number }[]> {
  const rows = await db
    .selectFrom('session_events')
    .select(['turn_id', 'seq'])
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where('seq', '>', after)
    .where('seq', '<=', upTo)
    .where('type', '=', sql.lit('turn'))
    .orderBy('seq')
    .limit(MAX_TURNS_LISTED)
    .execute()
  return rows.map(({ turn_id, seq }) => ({ turnId: turn_id ?? '', seq }))
}

/** The turn that was begun and neither done nor failed, if there is one; what a parent left open is not a fork's. */
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
