import { type Kysely, sql } from 'kysely'

/** Names that clients of a dialect give their sessions. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await db.schema.alterTable('sessions').addColumn('external_id', 'text').execute()
  await db.schema
    .createIndex('sessions_external_id')
    .unique()
    .on('sessions')
    .columns(['tenant_id', 'external_id'])
    .where(sql.ref('external_id'), 'is not', sql.lit(null))
    .execute()
}
