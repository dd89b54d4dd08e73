import { type Kysely, sql } from 'kysely'

/** Sessions without an agent, templates, executions. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await letAgentsBeAbsent(db)
  await extendSessions(db)
  await extendSandboxes(db)
  await createTemplates(db)
  await createExecutions(db)
  // Small: only what executions wrote is in it.
  await db.schema
    .createIndex('session_events_output')
    .on('session_events')
    .columns(['session_id', 'turn_id', 'seq'])
    .where(sql.ref('type'), '=', sql.lit('output'))
    .execute()
}

/** SQLite cannot take back a NOT NULL, so a column takes the place of the other. */
async function letAgentsBeAbsent(db: Kysely<unknown>): Promise<void> {
  await db.schema.dropIndex('sessions_agent').execute()
  for (const table of ['sessions', 'sandboxes']) {
    for (const [column, type] of [
      ['agent_name', 'text'],
      ['agent_version', 'integer'],
    ] as const) {
      await db.schema.alterTable(table).addColumn(`${column}_new`, type).execute()
      await sql`update ${sql.table(table)} set ${sql.ref(`${column}_new`)} = ${sql.ref(column)}`.execute(db)
      await db.schema.alterTable(table).dropColumn(column).execute()
      await db.schema.alterTable(table).renameColumn(`${column}_new`, column).execute()
    }
  }
  await db.schema
    .createIndex('sessions_agent')
    .on('sessions')
    .columns(['tenant_id', 'agent_name', 'status'])
    .execute()
}

async function extendSessions(db: Kysely<unknown>): Promise<void> {
  const sessions = () => db.schema.alterTable('sessions')
  await sessions().addColumn('template', 'text').execute()
  await sessions()
    .addColumn('mode', 'text', (column) => column.notNull().defaultTo('persistent'))
    .execute()
  await sessions().addColumn('agent_id', 'text').execute()
  await sessions()
    .addColumn('run_settings', 'text', (column) => column.notNull().defaultTo('{}'))
    .execute()
  await sessions().addColumn('idle_timeout_ms', 'bigint').execute()
  await sessions().addColumn('lifetime_ms', 'bigint').execute()
  await db.schema
    .createIndex('sessions_template')
    .on('sessions')
    .columns(['tenant_id', 'template', 'status'])
    .execute()
  // Small: what a sweep looks through again and again.
  await db.schema
    .createIndex('sessions_ephemeral')
    .on('sessions')
    .columns(['owner_id', 'last_active_at'])
    .where(sql.ref('mode'), '=', sql.lit('ephemeral'))
    .where(sql.ref('status'), '!=', sql.lit('ended'))
    .execute()
  // The database decides who of two that ask at once makes the session.
  await db.schema
    .createIndex('sessions_agent_id')
    .unique()
    .on('sessions')
    .columns(['tenant_id', 'agent_id', 'template'])
    .where(sql.ref('status'), '!=', sql.lit('ended'))
    .execute()
}

async function extendSandboxes(db: Kysely<unknown>): Promise<void> {
  await db.schema.alterTable('sandboxes').addColumn('template', 'text').execute()
}

async function createTemplates(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('templates')
    .addColumn('tenant_id', 'text', (column) => column.notNull())
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('settings', 'text', (column) => column.notNull())
    .addColumn('env_sealed', 'text', (column) => column.notNull())
    .addColumn('version', 'integer', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('updated_at', 'bigint', (column) => column.notNull())
    .addPrimaryKeyConstraint('templates_pk', ['tenant_id', 'name'])
    .execute()
}

async function createExecutions(db: Kysely<unknown>): Promise<void> {
  await db.schema
    .createTable('executions')
    .addColumn('id', 'text', (column) => column.primaryKey().notNull())
    .addColumn('tenant_id', 'text', (column) => column.notNull())
    .addColumn('session_id', 'text', (column) =>
      column.notNull().references('sessions.id').onDelete('cascade'),
    )
    .addColumn('owner_id', 'text', (column) => column.notNull())
    .addColumn('status', 'text', (column) => column.notNull())
    .addColumn('language', 'text', (column) => column.notNull())
    .addColumn('kind', 'text', (column) => column.notNull())
    .addColumn('kernel', 'text')
    .addColumn('code', 'text', (column) => column.notNull())
    .addColumn('input_sealed', 'text')
    .addColumn('retries', 'integer', (column) => column.notNull())
    .addColumn('timeout_ms', 'bigint', (column) => column.notNull())
    .addColumn('attempt', 'integer', (column) => column.notNull())
    .addColumn('path', 'text')
    .addColumn('is_new_kernel', 'integer')
    .addColumn('result', 'text')
    .addColumn('results', 'text')
    .addColumn('error', 'text')
    .addColumn('exit_code', 'integer')
    .addColumn('signal', 'text')
    .addColumn('truncated', 'integer', (column) => column.notNull())
    .addColumn('artifacts', 'text')
    .addColumn('artifacts_complete', 'integer', (column) => column.notNull())
    .addColumn('artifacts_until', 'bigint')
    .addColumn('metrics', 'text')
    .addColumn('idempotency_key', 'text')
    .addColumn('request_hash', 'text')
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('started_at', 'bigint')
    .addColumn('finished_at', 'bigint')
    .execute()
  await db.schema
    .createIndex('executions_session')
    .on('executions')
    .columns(['session_id', 'created_at', 'id'])
    .execute()
  await db.schema
    .createIndex('executions_key')
    .unique()
    .on('executions')
    .columns(['tenant_id', 'idempotency_key'])
    .execute()
  // Small: what a server that starts has to look at.
  await db.schema
    .createIndex('executions_open')
    .on('executions')
    .columns(['owner_id', 'created_at'])
    .where(sql.ref('finished_at'), 'is', null)
    .execute()
  await db.schema
    .createIndex('executions_artifacts')
    .on('executions')
    .columns(['owner_id', 'artifacts_until'])
    .where(sql.ref('artifacts_until'), 'is not', null)
    .execute()
}
