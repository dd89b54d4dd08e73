import type { Kysely } from 'kysely'

export async function up(db: Kysely<unknown>): Promise<void> {
  await createAgents(db)
  await createSessions(db)
  await createCredentials(db)
  await createApiKeys(db)
}

async function createAgents(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('agents')
    .addColumn('tenant_id', 'text', (column) => column.notNull())
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('version', 'integer', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('updated_at', 'bigint', (column) => column.notNull())
    .addPrimaryKeyConstraint('agents_pk', ['tenant_id', 'name'])
    .execute()
  await db.schema
    .createTable('agent_versions')
    .addColumn('tenant_id', 'text', (column) => column.notNull())
    .addColumn('agent_name', 'text', (column) => column.notNull())
    .addColumn('version', 'integer', (column) => column.notNull())
    .addColumn('content_hash', 'text', (column) => column.notNull())
    .addColumn('files', 'integer', (column) => column.notNull())
    .addColumn('bytes', 'bigint', (column) => column.notNull())
    .addColumn('config', 'text', (column) => column.notNull())
    .addColumn('env_sealed', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addPrimaryKeyConstraint('agent_versions_pk', ['tenant_id', 'agent_name', 'version'])
    .addForeignKeyConstraint(
      'agent_versions_agent_fk',
      ['tenant_id', 'agent_name'],
      'agents',
      ['tenant_id', 'name'],
      (constraint) => constraint.onDelete('cascade'),
    )
    .execute()
  await db.schema
    .createIndex('agent_versions_content')
    .on('agent_versions')
    .columns(['tenant_id', 'content_hash'])
    .execute()
}

async function createSessions(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('sessions')
    .addColumn('id', 'text', (column) => column.primaryKey().notNull())
    .addColumn('tenant_id', 'text', (column) => column.notNull())
    .addColumn('agent_name', 'text', (column) => column.notNull())
    .addColumn('agent_version', 'integer', (column) => column.notNull())
    .addColumn('status', 'text', (column) => column.notNull())
    .addColumn('provider', 'text', (column) => column.notNull())
    .addColumn('isolation', 'text', (column) => column.notNull())
    .addColumn('config', 'text', (column) => column.notNull())
    .addColumn('env_sealed', 'text', (column) => column.notNull())
    .addColumn('limits', 'text', (column) => column.notNull())
    .addColumn('network', 'text', (column) => column.notNull())
    .addColumn('budget', 'text', (column) => column.notNull())
    .addColumn('credentials', 'text', (column) => column.notNull())
    .addColumn('model_usage', 'text')
    .addColumn('sdk_session_id', 'text')
    .addColumn('owner_id', 'text', (column) => column.notNull())
    .addColumn('epoch', 'bigint', (column) => column.notNull())
    .addColumn('host_uid', 'bigint')
    .addColumn('sandbox_id', 'text')
    .addColumn('error_code', 'text')
    .addColumn('error_message', 'text')
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('last_active_at', 'bigint', (column) => column.notNull())
    .addColumn('ended_at', 'bigint')
    .addUniqueConstraint('sessions_host_uid', ['owner_id', 'host_uid'])
    .execute()
  await db.schema
    .createIndex('sessions_created')
    .on('sessions')
    .columns(['tenant_id', 'created_at', 'id'])
    .execute()
  await db.schema
    .createIndex('sessions_agent')
    .on('sessions')
    .columns(['tenant_id', 'agent_name', 'status'])
    .execute()
  await db.schema
    .createTable('session_events')
    .addColumn('tenant_id', 'text', (column) => column.notNull())
    .addColumn('session_id', 'text', (column) =>
      column.notNull().references('sessions.id').onDelete('cascade'),
    )
    .addColumn('seq', 'bigint', (column) => column.notNull())
    .addColumn('type', 'text', (column) => column.notNull())
    .addColumn('turn_id', 'text')
    .addColumn('data', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addPrimaryKeyConstraint('session_events_pk', ['session_id', 'seq'])
    .execute()
}

async function createCredentials(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('credentials')
    .addColumn('tenant_id', 'text', (column) => column.notNull())
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('hosts', 'text', (column) => column.notNull())
    .addColumn('scheme', 'text', (column) => column.notNull())
    .addColumn('secret_sealed', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('updated_at', 'bigint', (column) => column.notNull())
    .addPrimaryKeyConstraint('credentials_pk', ['tenant_id', 'name'])
    .execute()
}

async function createApiKeys(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('api_keys')
    .addColumn('id', 'text', (column) => column.primaryKey().notNull())
    .addColumn('tenant_id', 'text', (column) => column.notNull())
    .addColumn('key_hash', 'text', (column) => column.notNull().unique())
    .addColumn('label', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .execute()
}
