import { AshError, type Checkpoint, type CheckpointSettings } from '@ash-ai/shared'
import type { Selectable } from 'kysely'
import type { Db } from '../db/open-db.ts'
import type { CheckpointsTable } from '../db/tables.ts'
import type { Fence, SessionRow } from '../sessions/session-queries.ts'

export type CheckpointRow = Selectable<CheckpointsTable>

/** Stores a checkpoint if this host still owns the session and it has not ended. */
export async function insertCheckpoint(db: Db, fence: Fence, row: CheckpointRow): Promise<void> {
  const columns = Object.keys(row) as (keyof CheckpointRow)[]
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('checkpoints')
    .columns(columns)
    .expression((from) =>
      from
        .selectFrom('sessions')
        .select((select) => columns.map((column) => select.val(row[column]).as(column)))
        .where('tenant_id', '=', fence.tenantId)
        .where('id', '=', fence.sessionId)
        .where('owner_id', '=', fence.ownerId)
        .where('epoch', '=', fence.epoch)
        .where('status', '!=', 'ended'),
    )
    .executeTakeFirstOrThrow()
  if (numInsertedOrUpdatedRows !== 1n)
    throw new AshError('session_conflict', `Session ${fence.sessionId} has ended or belongs to another host`)
}

export async function getCheckpoint(
  db: Db,
  tenantId: string,
  sessionId: string,
  id: string,
): Promise<CheckpointRow> {
  const row = await findCheckpoint(db, tenantId, sessionId, id)
  if (!row) throw new AshError('checkpoint_not_found', `Session ${sessionId} has no checkpoint ${id}`)
  return row
}

export async function findCheckpoint(
  db: Db,
  tenantId: string,
  sessionId: string,
  id: string,
): Promise<CheckpointRow | undefined> {
  return db
    .selectFrom('checkpoints')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where('id', '=', id)
    .executeTakeFirst()
}

/** Newest first. The cursor is the `created_at` of the last one of the page before: no two of a session share it. */
export async function listCheckpoints(
  db: Db,
  tenantId: string,
  sessionId: string,
  { limit, cursor }: { limit: number; cursor?: string | undefined },
): Promise<{ rows: CheckpointRow[]; nextCursor: string | undefined }> {
  let query = db
    .selectFrom('checkpoints')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
  if (cursor !== undefined) query = query.where('created_at', '<', parseCursor(cursor))
  const rows = await query
    .orderBy('created_at', 'desc')
    .limit(limit + 1)
    .execute()
  const page = rows.slice(0, limit)
  return { rows: page, nextCursor: rows.length > limit ? String(page.at(-1)?.created_at) : undefined }
}

function parseCursor(cursor: string): number {
  if (/^\d{1,15}$/.test(cursor)) return Number(cursor)
  throw new AshError('validation_failed', 'The cursor is not one of this list', {
    details: [{ path: 'cursor', message: 'must be the nextCursor of an earlier reply' }],
  })
}

/** Says whether there was such a one. That which the files descend from stays. */
export async function deleteCheckpoint(
  db: Db,
  tenantId: string,
  sessionId: string,
  id: string,
): Promise<boolean> {
  const { numDeletedRows } = await db
    .deleteFrom('checkpoints')
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where('id', '=', id)
    .where('id', 'not in', currentOf(db, tenantId, sessionId))
    .executeTakeFirst()
  return numDeletedRows > 0n
}

/** Checkpoints of a session that has ended. */
export async function deleteCheckpoints(db: Db, { tenantId, sessionId }: Fence): Promise<void> {
  await db
    .deleteFrom('checkpoints')
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .execute()
}

interface PruneRules extends CheckpointSettings {
  keep: number
  /** Not this one, whatever the rules say. */
  spared?: string | undefined
}

/** Forgets what is more, or older, than the session keeps, but never what its files descend from. */
export async function pruneCheckpoints(
  db: Db,
  { tenantId, sessionId }: Pick<Fence, 'tenantId' | 'sessionId'>,
  { keep, keepDays, spared }: PruneRules,
): Promise<void> {
  const oldest = keepDays === undefined ? 0 : Date.now() - keepDays * 86_400_000
  const newest = db
    .selectFrom('checkpoints')
    .select('created_at')
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .orderBy('created_at', 'desc')
    .offset(keep - 1)
    .limit(1)
  await db
    .deleteFrom('checkpoints')
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where((where) => where.or([where('created_at', '<', newest), where('created_at', '<', oldest)]))
    .where('id', 'not in', currentOf(db, tenantId, sessionId))
    .where('id', '!=', spared ?? '')
    .execute()
}

const currentOf = (db: Db, tenantId: string, sessionId: string) =>
  db
    .selectFrom('sessions')
    .select('checkpoint_id')
    .where('tenant_id', '=', tenantId)
    .where('id', '=', sessionId)
    .where('checkpoint_id', 'is not', null)
    .$castTo<{ checkpoint_id: string }>()

/** The row as clients see it. */
export function toCheckpoint(row: CheckpointRow, session: Pick<SessionRow, 'checkpoint_id'>): Checkpoint {
  return {
    id: row.id,
    sessionId: row.session_id,
    seq: row.seq,
    ...(row.turn_id !== null && { turnId: row.turn_id }),
    reason: row.reason,
    files: row.files,
    bytes: row.bytes,
    isCurrent: row.id === session.checkpoint_id,
    isUploaded: row.uploaded_at !== null,
    createdAt: new Date(row.created_at).toISOString(),
  }
}
