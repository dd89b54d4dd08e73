import { type Kysely, sql } from 'kysely'

/** Messages that wait for their turn or carry an idempotency key, and how large each log has grown. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('turn_requests')
    .addColumn('tenant_id', 'text', (column) => column.notNull())
    .addColumn('session_id', 'text', (column) =>
      column.notNull().references('sessions.id').onDelete('cascade'),
    )
    .addColumn('turn_id', 'text', (column) => column.notNull())
    .addColumn('status', 'text', (column) => column.notNull())
    .addColumn('position', 'bigint', (column) => column.notNull())
    .addColumn('message', 'text')
    .addColumn('idempotency_key', 'text')
    .addColumn('request_hash', 'text')
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addPrimaryKeyConstraint('turn_requests_pk', ['session_id', 'turn_id'])
    .addUniqueConstraint('turn_requests_key', ['session_id', 'idempotency_key'])
    .execute()
  await db.schema.alterTable('session_events').addColumn('total_chars', 'bigint').execute()
  // Small: only the entries that begin a turn are in it.
  await db.schema
    .createIndex('session_events_turn')
    .on('session_events')
    .columns(['session_id', 'turn_id'])
    .where(sql.ref('type'), '=', sql.lit('turn'))
    .execute()
}
