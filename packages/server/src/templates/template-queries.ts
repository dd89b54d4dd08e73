import { AshError, type Language, type Template, TemplateSettings } from '@ash-ai/shared'
import type { Transaction } from 'kysely'
import { toConfig } from '../agents/agent-rows.ts'
import type { Db } from '../db/open-db.ts'
import type { SecretBox } from '../db/secret-box.ts'
import type { Tables, TemplatesTable } from '../db/tables.ts'
import { validationError } from '../http/validation-error.ts'
import { BUILT_IN_TEMPLATES } from './built-in-templates.ts'
import { languagesOf } from './template-settings.ts'

export interface TemplateStore {
  db: Db
  secrets: SecretBox
}

/** What a session begins with. */
export interface TemplateForSession {
  name: string
  settings: Omit<TemplateSettings, 'env'>
  languages: Language[]
  env: Record<string, string>
}

/** Throws `template_conflict` where the name is taken. */
export async function insertTemplate(
  store: TemplateStore,
  tenantId: string,
  name: string,
  settings: TemplateSettings,
): Promise<Template> {
  assertNotBuiltIn(name)
  const now = Date.now()
  const row = await store.db
    .insertInto('templates')
    .values({ ...toRow(store, tenantId, name, 1, settings), created_at: now, updated_at: now })
    .onConflict((conflict) => conflict.columns(['tenant_id', 'name']).doNothing())
    .returningAll()
    .executeTakeFirst()
  if (!row)
    throw new AshError('template_conflict', `There is a template "${name}" already. Replace it with PUT.`)
  return toTemplate(store.secrets, row)
}

/** Makes the template what the settings say, and nothing else; says whether there was none. */
export async function putTemplate(
  store: TemplateStore,
  tenantId: string,
  name: string,
  settings: TemplateSettings,
): Promise<{ template: Template; isNew: boolean }> {
  assertNotBuiltIn(name)
  return store.db.transaction().execute(async (transaction) => {
    const version = (await lockTemplate(transaction, tenantId, name)) + 1
    const row = await transaction
      .updateTable('templates')
      .set({ ...toRow(store, tenantId, name, version, settings), updated_at: Date.now() })
      .where('tenant_id', '=', tenantId)
      .where('name', '=', name)
      .returningAll()
      .executeTakeFirstOrThrow()
    return { template: toTemplate(store.secrets, row), isNew: version === 1 }
  })
}

/** Its version, 0 for a new one. Until the transaction ends nobody else gets past this row. */
async function lockTemplate(
  transaction: Transaction<Tables>,
  tenantId: string,
  name: string,
): Promise<number> {
  const now = Date.now()
  const empty = { settings: '{}', env_sealed: '', version: 0, created_at: now, updated_at: now }
  const { version } = await transaction
    .insertInto('templates')
    .values({ tenant_id: tenantId, name, ...empty })
    .onConflict((conflict) =>
      conflict.columns(['tenant_id', 'name']).doUpdateSet((eb) => ({ version: eb.ref('templates.version') })),
    )
    .returning('version')
    .executeTakeFirstOrThrow()
  return version
}

export async function getTemplate(store: TemplateStore, tenantId: string, name: string): Promise<Template> {
  const builtIn = BUILT_IN_TEMPLATES.get(name)
  if (builtIn) return builtInTemplate(name, builtIn)
  const row = await findTemplate(store.db, tenantId, name)
  if (!row) throw notFound(name)
  return toTemplate(store.secrets, row)
}

export async function getTemplateForSession(
  { db, secrets }: TemplateStore,
  tenantId: string,
  name: string,
): Promise<TemplateForSession> {
  const builtIn = BUILT_IN_TEMPLATES.get(name)
  if (builtIn) return { name, settings: builtIn, languages: languagesOf(builtIn), env: {} }
  const row = await findTemplate(db, tenantId, name)
  if (!row) throw notFound(name)
  const settings = toSettings(row)
  return { name, settings, languages: languagesOf(settings), env: openEnv(secrets, row) }
}

/**
 * In order of name, after the name `after`, those that are built in among the others. Sorted here: databases differ in
 * what they take for the order of names.
 */
export async function listTemplates(
  { db, secrets }: TemplateStore,
  tenantId: string,
  { limit, after = '' }: { limit: number; after?: string | undefined },
): Promise<{ templates: Template[]; nextCursor?: string }> {
  const own = db.selectFrom('templates').where('tenant_id', '=', tenantId)
  const names = (await own.select('name').execute()).map(({ name }) => name)
  const all = [...names, ...BUILT_IN_TEMPLATES.keys()].filter((name) => name > after).sort()
  const page = all.slice(0, limit)
  const rows = page.length === 0 ? [] : await own.selectAll().where('name', 'in', page).execute()
  const found = new Map(rows.map((row) => [row.name, toTemplate(secrets, row)]))
  for (const [name, settings] of BUILT_IN_TEMPLATES) found.set(name, builtInTemplate(name, settings))
  const last = page.at(-1)
  return {
    templates: page.flatMap((name) => found.get(name) ?? []),
    ...(all.length > limit && last !== undefined && { nextCursor: last }),
  }
}

/** Removes a template that no open session and no agent names. */
export async function deleteTemplate(db: Db, tenantId: string, name: string): Promise<void> {
  assertNotBuiltIn(name)
  await db.transaction().execute(async (transaction) => {
    await assertUnused(transaction, tenantId, name)
    const { numDeletedRows } = await transaction
      .deleteFrom('templates')
      .where('tenant_id', '=', tenantId)
      .where('name', '=', name)
      .executeTakeFirst()
    if (numDeletedRows === 0n) throw notFound(name)
  })
}

async function assertUnused(db: Db, tenantId: string, name: string): Promise<void> {
  const session = await db
    .selectFrom('sessions')
    .select('id')
    .where('tenant_id', '=', tenantId)
    .where('template', '=', name)
    .where('status', '!=', 'ended')
    .limit(1)
    .executeTakeFirst()
  if (session) throw inUse(`Session ${session.id} still uses template "${name}". End its sessions first.`)
  const agent = await findAgentOver(db, tenantId, name)
  if (agent !== undefined)
    throw inUse(`Agent "${agent}" names template "${name}". Deploy it with another, or delete it first.`)
}

async function findAgentOver(db: Db, tenantId: string, name: string): Promise<string | undefined> {
  const newest = await db
    .selectFrom('agents')
    .innerJoin('agent_versions', (join) =>
      join
        .onRef('agent_versions.tenant_id', '=', 'agents.tenant_id')
        .onRef('agent_versions.agent_name', '=', 'agents.name')
        .onRef('agent_versions.version', '=', 'agents.version'),
    )
    .select(['agents.name', 'agent_versions.config'])
    .where('agents.tenant_id', '=', tenantId)
    .where('agent_versions.config', 'like', '%"template"%')
    .execute()
  return newest.find(({ config }) => toConfig(config).template === name)?.name
}

/** Throws where the tenant has no such template; `field` is what the client called it. */
export async function assertTemplate(
  db: Db,
  tenantId: string,
  name: string | undefined,
  field: string,
): Promise<void> {
  if (name === undefined || BUILT_IN_TEMPLATES.has(name) || (await findTemplate(db, tenantId, name))) return
  throw validationError([{ path: field, message: `there is no template "${name}"` }])
}

/** Of every tenant: for keeping spare sandboxes ready. */
export async function listAllTemplates(db: Db): Promise<{ tenant_id: string; name: string }[]> {
  return db.selectFrom('templates').select(['tenant_id', 'name']).execute()
}

async function findTemplate(db: Db, tenantId: string, name: string): Promise<TemplatesTable | undefined> {
  return db
    .selectFrom('templates')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .where('name', '=', name)
    .executeTakeFirst()
}

function toRow(
  { secrets }: TemplateStore,
  tenantId: string,
  name: string,
  version: number,
  { env = {}, ...settings }: TemplateSettings,
) {
  return {
    tenant_id: tenantId,
    name,
    version,
    settings: JSON.stringify(settings),
    env_sealed: secrets.seal(env, envAad(tenantId, name, version)),
  }
}

const toSettings = ({ settings }: Pick<TemplatesTable, 'settings'>) =>
  TemplateSettings.parse(JSON.parse(settings))

const openEnv = (secrets: SecretBox, row: TemplatesTable) =>
  secrets.open(row.env_sealed, envAad(row.tenant_id, row.name, row.version)) as Record<string, string>

/** Ties a sealed environment to its template as it is now. */
const envAad = (tenantId: string, name: string, version: number) =>
  JSON.stringify(['template', tenantId, name, version])

/** As clients see it: of the environment only the names. */
function toTemplate(secrets: SecretBox, row: TemplatesTable): Template {
  const settings = toSettings(row)
  const names = Object.keys(openEnv(secrets, row))
  return {
    name: row.name,
    ...settings,
    languages: languagesOf(settings),
    env: Object.fromEntries(names.map((name) => [name, '***' as const])),
    isBuiltIn: false,
    createdAt: new Date(row.created_at).toISOString(),
    updatedAt: new Date(row.updated_at).toISOString(),
  }
}

const builtInTemplate = (name: string, settings: TemplateSettings): Template => ({
  name,
  ...settings,
  languages: languagesOf(settings),
  env: {},
  isBuiltIn: true,
})

function assertNotBuiltIn(name: string): void {
  if (BUILT_IN_TEMPLATES.has(name))
    throw new AshError('template_conflict', `The template "${name}" is built in and cannot be changed`)
}

const notFound = (name: string) => new AshError('template_not_found', `No template is named "${name}"`)

const inUse = (text: string) => new AshError('template_in_use', text)
