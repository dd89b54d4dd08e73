import type { Selectable } from 'kysely'
import type { Db } from '../db/open-db.ts'
import type { TurnRequestsTable } from '../db/tables.ts'
import type { Fence } from './session-queries.ts'

export type TurnRequestRow = Selectable<TurnRequestsTable>

/** A turn whose key is known already, because it was refused before, takes the place it has now. */
export async function saveTurnRequest(db: Db, row: TurnRequestRow): Promise<void> {
  const { status, position, message } = row
  await db
    .insertInto('turn_requests')
    .values(row)
    .onConflict((conflict) =>
      conflict.columns(['session_id', 'turn_id']).doUpdateSet({ status, position, message }),
    )
    .execute()
}

export async function findTurnRequest(
  db: Db,
  tenantId: string,
  sessionId: string,
  key: string,
): Promise<TurnRequestRow | undefined> {
  return db
    .selectFrom('turn_requests')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .where('session_id', '=', sessionId)
    .where('idempotency_key', '=', key)
    .executeTakeFirst()
}

/** What still waits, in the order in which it came, of every session of a host: also of one that ended meanwhile. */
export async function listWaitingRequests(db: Db, ownerId: string): Promise<TurnRequestRow[]> {
  return db
    .selectFrom('turn_requests')
    .innerJoin('sessions', 'sessions.id', 'turn_requests.session_id')
    .selectAll('turn_requests')
    .where('sessions.owner_id', '=', ownerId)
    .where('turn_requests.status', '!=', 'begun')
    .orderBy('turn_requests.session_id')
    .orderBy('turn_requests.position')
    .execute()
}

/** The turn is in the log now: what is left to remember is its key. */
export async function markBegun(db: Db, fence: Fence, turnId: string): Promise<void> {
  await db
    .deleteFrom('turn_requests')
    .where('tenant_id', '=', fence.tenantId)
    .where('session_id', '=', fence.sessionId)
    .where('turn_id', '=', turnId)
    .where('idempotency_key', 'is', null)
    .execute()
  await db
    .updateTable('turn_requests')
    .set({ status: 'begun', message: null })
    .where('tenant_id', '=', fence.tenantId)
    .where('session_id', '=', fence.sessionId)
    .where('turn_id', '=', turnId)
    .execute()
}

/** Marks everything that waits as cancelled. */
export async function cancelWaiting(db: Db, fence: Fence): Promise<void> {
  await db
    .updateTable('turn_requests')
    .set({ status: 'cancelled' })
    .where('tenant_id', '=', fence.tenantId)
    .where('session_id', '=', fence.sessionId)
    .where('status', '=', 'queued')
    .execute()
}

/** Keys are remembered for a day after their turn began. */
export async function forgetOldKeys(db: Db, fence: Fence, before: number): Promise<void> {
  await db
    .deleteFrom('turn_requests')
    .where('tenant_id', '=', fence.tenantId)
    .where('session_id', '=', fence.sessionId)
    .where('status', '=', 'begun')
    .where('created_at', '<', before)
    .execute()
}
