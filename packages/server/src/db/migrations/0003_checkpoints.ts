import { randomUUID } from 'node:crypto'
import { type Kysely, sql } from 'kysely'

/** Checkpoints and what refers to them, forks, which sandboxes are alive, and a name for this database. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await extendSessions(db)
  await createCheckpoints(db)
  await createSandboxes(db)
  await createInstallation(db)
}

async function extendSessions(db: Kysely<unknown>): Promise<void> {
  const sessions = () => db.schema.alterTable('sessions')
  await sessions().addColumn('parent_session_id', 'text').execute()
  await sessions().addColumn('fork_seq', 'bigint').execute()
  await sessions().addColumn('checkpoint_id', 'text').execute()
  await sessions()
    .addColumn('files_pending', 'integer', (column) => column.notNull().defaultTo(0))
    .execute()
  await sessions()
    .addColumn('auto_resume', 'integer', (column) => column.notNull().defaultTo(1))
    .execute()
  await sessions()
    .addColumn('checkpoint_settings', 'text', (column) => column.notNull().defaultTo('{}'))
    .execute()
  await db.schema.createIndex('sessions_owner').on('sessions').columns(['owner_id', 'status']).execute()
}

async function createCheckpoints(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('checkpoints')
    .addColumn('id', 'text', (column) => column.primaryKey().notNull())
    .addColumn('tenant_id', 'text', (column) => column.notNull())
    .addColumn('session_id', 'text', (column) =>
      column.notNull().references('sessions.id').onDelete('cascade'),
    )
    .addColumn('owner_id', 'text', (column) => column.notNull())
    .addColumn('seq', 'bigint', (column) => column.notNull())
    .addColumn('turn_id', 'text')
    .addColumn('reason', 'text', (column) => column.notNull())
    .addColumn('manifest', 'text', (column) => column.notNull())
    .addColumn('files', 'bigint', (column) => column.notNull())
    .addColumn('bytes', 'bigint', (column) => column.notNull())
    .addColumn('settings', 'text', (column) => column.notNull())
    .addColumn('sdk_session_id', 'text')
    .addColumn('uploaded_at', 'bigint')
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .execute()
  await db.schema
    .createIndex('checkpoints_session')
    .on('checkpoints')
    .columns(['session_id', 'created_at', 'id'])
    .execute()
  await db.schema
    .createIndex('checkpoints_tenant')
    .on('checkpoints')
    .columns(['tenant_id', 'created_at'])
    .execute()
  // Small: only what is to be uploaded is in it.
  await db.schema
    .createIndex('checkpoints_upload')
    .on('checkpoints')
    .columns(['owner_id', 'created_at'])
    .where(sql.ref('uploaded_at'), 'is', null)
    .execute()
}

async function createSandboxes(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('sandboxes')
    .addColumn('id', 'text', (column) => column.primaryKey().notNull())
    .addColumn('tenant_id', 'text', (column) => column.notNull())
    .addColumn('owner_id', 'text', (column) => column.notNull())
    .addColumn('session_id', 'text')
    .addColumn('agent_name', 'text', (column) => column.notNull())
    .addColumn('agent_version', 'integer', (column) => column.notNull())
    .addColumn('state', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('last_used_at', 'bigint', (column) => column.notNull())
    .execute()
  await db.schema.createIndex('sandboxes_owner').on('sandboxes').columns(['owner_id', 'state']).execute()
}

/** A remote store belongs to one database, which it knows by this. */
async function createInstallation(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('installation')
    .addColumn('id', 'text', (column) => column.primaryKey().notNull())
    .execute()
  await sql`insert into installation (id) values (${randomUUID()})`.execute(db)
}
