import { type Agent, type AgentConfig, type AgentVersion, AshError, type Packages } from '@ash-ai/shared'
import type { Transaction } from 'kysely'
import type { Db } from '../db/open-db.ts'
import type { SecretBox } from '../db/secret-box.ts'
import type { AgentVersionsTable, Tables } from '../db/tables.ts'
import { agentVersionDir } from './agent-folder.ts'
import {
  type AgentEnv,
  envAad,
  fingerprintOf,
  isSame,
  type NewVersion,
  openEnv,
  toAgent,
  toConfig,
  toIso,
} from './agent-rows.ts'

export interface AgentStore {
  db: Db
  secrets: SecretBox
  dataDir: string
}

/** What a session needs of the agent version it pins. */
export interface AgentForSession {
  name: string
  version: number
  contentHash: string
  /** Of this very version: it has one that no other ever had. */
  fingerprint: string
  /** The files, read-only. */
  dir: string
  config: AgentConfig
  /** The environment that it is to run in. */
  template?: string | undefined
  packages: Packages
  /** How many spare sandboxes it wants. */
  warm?: number | undefined
  env: AgentEnv
}

/** Of the version asked for, else the newest. */
export async function getAgentForSession(
  { db, secrets, dataDir }: AgentStore,
  tenantId: string,
  name: string,
  version?: number,
): Promise<AgentForSession> {
  const row = await findVersion(db, tenantId, name, version)
  if (!row) throw notFound(name, version)
  const { packages = {}, warm, template, ...config } = toConfig(row.config)
  return {
    name,
    version: row.version,
    contentHash: row.content_hash,
    fingerprint: fingerprintOf(row),
    dir: agentVersionDir(dataDir, tenantId, row.content_hash),
    config,
    packages,
    ...(template !== undefined && { template }),
    ...(warm !== undefined && { warm }),
    env: openEnv(secrets, row),
  }
}

export async function getAgent({ db, secrets }: AgentStore, tenantId: string, name: string): Promise<Agent> {
  const row = await selectAgents(db, tenantId).where('agents.name', '=', name).executeTakeFirst()
  if (!row) throw notFound(name)
  return toAgent(secrets, row)
}

/** In order of name, after the name `after`. One more than `limit` tells whether there is a next page. */
export async function listAgents(
  { db, secrets }: AgentStore,
  tenantId: string,
  { limit, after }: { limit: number; after?: string },
): Promise<{ agents: Agent[]; nextCursor?: string }> {
  const query = selectAgents(db, tenantId)
    .orderBy('agents.name')
    .limit(limit + 1)
  const rows = await (after === undefined ? query : query.where('agents.name', '>', after)).execute()
  const agents = rows.slice(0, limit).map((row) => toAgent(secrets, row))
  const last = agents.at(-1)
  return { agents, ...(rows.length > limit && last && { nextCursor: last.name }) }
}

/** Newest first. */
export async function listVersions(db: Db, tenantId: string, name: string): Promise<AgentVersion[]> {
  const rows = await db
    .selectFrom('agent_versions')
    .select(['version', 'content_hash', 'files', 'bytes', 'created_at'])
    .where('tenant_id', '=', tenantId)
    .where('agent_name', '=', name)
    .orderBy('version', 'desc')
    .execute()
  if (rows.length === 0) throw notFound(name)
  return rows.map(({ version, content_hash, files, bytes, created_at }) => ({
    version,
    contentHash: content_hash,
    files,
    bytes,
    createdAt: toIso(created_at),
  }))
}

/** Adds a version, unless the newest is already the same; says which. Safe with others deploying meanwhile. */
export async function insertVersion(
  { db, secrets }: AgentStore,
  tenantId: string,
  next: NewVersion,
): Promise<{ isNew: boolean }> {
  return db.transaction().execute(async (transaction) => {
    const current = await lockAgent(transaction, tenantId, next.name)
    const row = await findVersion(transaction, tenantId, next.name, current)
    if (row && isSame(secrets, row, next)) return { isNew: false }
    const version = current + 1
    const now = Date.now()
    await transaction
      .updateTable('agents')
      .set({ version, updated_at: now })
      .where('tenant_id', '=', tenantId)
      .where('name', '=', next.name)
      .execute()
    await transaction
      .insertInto('agent_versions')
      .values({
        tenant_id: tenantId,
        agent_name: next.name,
        version,
        content_hash: next.contentHash,
        files: next.files,
        bytes: next.bytes,
        config: JSON.stringify(next.config),
        env_sealed: secrets.seal(next.env, envAad(tenantId, next.name, version)),
        created_at: now,
      })
      .execute()
    return { isNew: true }
  })
}

/** The newest version, 0 for a new agent. Until the transaction ends nobody else gets past this row. */
async function lockAgent(transaction: Transaction<Tables>, tenantId: string, name: string): Promise<number> {
  const now = Date.now()
  const { version } = await transaction
    .insertInto('agents')
    .values({ tenant_id: tenantId, name, version: 0, created_at: now, updated_at: now })
    .onConflict((conflict) =>
      conflict.columns(['tenant_id', 'name']).doUpdateSet((eb) => ({ version: eb.ref('agents.version') })),
    )
    .returning('version')
    .executeTakeFirstOrThrow()
  return version
}

/** Removes an agent that no open session uses. Returns the content that no agent of the tenant has any more. */
export async function deleteAgent(db: Db, tenantId: string, name: string): Promise<{ orphans: string[] }> {
  return db.transaction().execute(async (transaction) => {
    await assertUnused(transaction, tenantId, name)
    const hashes = transaction
      .selectFrom('agent_versions')
      .select('content_hash')
      .where('tenant_id', '=', tenantId)
    const own = await hashes.where('agent_name', '=', name).distinct().execute()
    const shared = await hashes.where('agent_name', '!=', name).distinct().execute()
    const { numDeletedRows } = await transaction
      .deleteFrom('agents')
      .where('tenant_id', '=', tenantId)
      .where('name', '=', name)
      .executeTakeFirst()
    if (numDeletedRows === 0n) throw notFound(name)
    const kept = new Set(shared.map((row) => row.content_hash))
    return { orphans: own.map((row) => row.content_hash).filter((hash) => !kept.has(hash)) }
  })
}

async function assertUnused(transaction: Transaction<Tables>, tenantId: string, name: string): Promise<void> {
  const session = await transaction
    .selectFrom('sessions')
    .select('id')
    .where('tenant_id', '=', tenantId)
    .where('agent_name', '=', name)
    .where('status', '!=', 'ended')
    .limit(1)
    .executeTakeFirst()
  if (session) {
    throw new AshError(
      'agent_in_use',
      `Session ${session.id} still uses agent "${name}". End its sessions first.`,
    )
  }
}

/** Of every tenant: for keeping spare sandboxes ready. */
export async function listAllAgents(db: Db): Promise<{ tenant_id: string; name: string }[]> {
  return db.selectFrom('agents').select(['tenant_id', 'name']).execute()
}

/** Every version of every tenant: for removing layers that belong to none. */
export async function listAllVersions(db: Db) {
  return db
    .selectFrom('agent_versions')
    .select(['tenant_id', 'agent_name', 'version', 'content_hash', 'config', 'env_sealed'])
    .execute()
}

/** Every content hash in use, of every tenant: for removing folders that no row names. */
export async function listContentHashes(db: Db): Promise<{ tenant_id: string; content_hash: string }[]> {
  return db.selectFrom('agent_versions').select(['tenant_id', 'content_hash']).distinct().execute()
}

async function findVersion(
  db: Db,
  tenantId: string,
  name: string,
  version?: number,
): Promise<AgentVersionsTable | undefined> {
  const query = db
    .selectFrom('agent_versions')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .where('agent_name', '=', name)
  const chosen =
    version === undefined ? query.orderBy('version', 'desc').limit(1) : query.where('version', '=', version)
  return chosen.executeTakeFirst()
}

/** Each agent with its newest version. */
function selectAgents(db: Db, tenantId: string) {
  return db
    .selectFrom('agents')
    .innerJoin('agent_versions', (join) =>
      join
        .onRef('agent_versions.tenant_id', '=', 'agents.tenant_id')
        .onRef('agent_versions.agent_name', '=', 'agents.name')
        .onRef('agent_versions.version', '=', 'agents.version'),
    )
    .selectAll('agent_versions')
    .select(['agents.created_at as agent_created_at', 'agents.updated_at'])
    .where('agents.tenant_id', '=', tenantId)
}

const notFound = (name: string, version?: number) =>
  new AshError(
    'agent_not_found',
    version === undefined ? `No agent is named "${name}"` : `Agent "${name}" has no version ${version}`,
  )
