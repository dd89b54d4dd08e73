import { type Kysely, sql } from 'kysely'

/** How much of runs is kept, and for how long; and where the entries of an execution are. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema.alterTable('executions').addColumn('artifacts_bytes', 'bigint').execute()
  // All that is asked for is in it.
  await db.schema
    .createIndex('executions_kept')
    .on('executions')
    .columns(['session_id', 'tenant_id', 'artifacts_bytes'])
    .where(sql.ref('artifacts_until'), 'is not', sql.lit(null))
    .execute()
  await db.schema
    .createIndex('executions_finished')
    .on('executions')
    .columns(['owner_id', 'finished_at'])
    .where(sql.ref('finished_at'), 'is not', sql.lit(null))
    .execute()
  await db.schema
    .createIndex('session_events_execution')
    .on('session_events')
    .columns(['session_id', 'turn_id', 'seq'])
    .where(sql.ref('type'), '=', sql.lit('execution'))
    .execute()
  await db.schema
    .createIndex('sessions_spent')
    .on('sessions')
    .columns(['owner_id', 'ended_at'])
    .where(sql.ref('mode'), '=', sql.lit('ephemeral'))
    .where(sql.ref('status'), '=', sql.lit('ended'))
    .execute()
  await db.schema
    .createIndex('sessions_parent')
    .on('sessions')
    .columns(['parent_session_id'])
    .where(sql.ref('parent_session_id'), 'is not', sql.lit(null))
    .execute()
}
