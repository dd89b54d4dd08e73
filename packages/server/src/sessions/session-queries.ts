import type { BudgetState } from '@ash-ai/sandbox'
import {
  type AgentConfig,
  AshError,
  type BudgetLimits,
  type CheckpointSettings,
  isAshError,
  ModelUsage,
  type Network,
  type SandboxState,
  type Session,
  type SessionStatus,
  statusesBefore,
} from '@ash-ai/shared'
import { type Selectable, sql } from 'kysely'
import { parseCursor, toPage } from '../db/newest-first.ts'
import type { Db } from '../db/open-db.ts'
import type { SessionsTable } from '../db/tables.ts'
import { storedLimits } from './effective-limits.ts'
import { readRunSettings } from './run-settings.ts'

export type SessionRow = Selectable<SessionsTable>

/** Who may write to a session: the host that owns it, at the epoch it took it. */
export interface Fence {
  tenantId: string
  sessionId: string
  ownerId: string
  epoch: number
}

export const fenceOf = (row: SessionRow): Fence => ({
  tenantId: row.tenant_id,
  sessionId: row.id,
  ownerId: row.owner_id,
  epoch: row.epoch,
})

/** False where another session of this host has the uid, or one is open for whom this one is. */
export async function insertSession(db: Db, row: SessionRow): Promise<boolean> {
  const inserted = await db
    .insertInto('sessions')
    .values(row)
    .onConflict((conflict) => conflict.doNothing())
    .returning('id')
    .executeTakeFirst()
  return inserted !== undefined
}

export async function getSession(db: Db, tenantId: string, id: string): Promise<SessionRow> {
  const row = await db
    .selectFrom('sessions')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .where('id', '=', id)
    .executeTakeFirst()
  if (!row) throw sessionNotFound(id)
  return row
}

export const sessionNotFound = (id: string) => new AshError('session_not_found', `There is no session ${id}`)

/** The one that is open for somebody, of a template. The database keeps it the only one. */
export async function findOpenSessionOf(
  db: Db,
  tenantId: string,
  template: string,
  agentId: string,
): Promise<SessionRow | undefined> {
  return db
    .selectFrom('sessions')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .where('agent_id', '=', agentId)
    .where('template', '=', template)
    .where('status', '!=', 'ended')
    .executeTakeFirst()
}

export interface SessionFilter {
  agent?: string | undefined
  template?: string | undefined
  status?: SessionStatus | undefined
  limit: number
  cursor?: string | undefined
}

/** Newest first. The cursor is the place of the last row of the page before. */
export async function listSessions(
  db: Db,
  tenantId: string,
  { agent, template, status, limit, cursor }: SessionFilter,
): Promise<{ rows: SessionRow[]; nextCursor: string | undefined }> {
  let query = db.selectFrom('sessions').selectAll().where('tenant_id', '=', tenantId)
  if (agent !== undefined) query = query.where('agent_name', '=', agent)
  if (template !== undefined) query = query.where('template', '=', template)
  if (status !== undefined) query = query.where('status', '=', status)
  if (cursor !== undefined) {
    const place = parseCursor(cursor)
    query = query.where((where) =>
      where.or([
        where('created_at', '<', place.createdAt),
        where.and([where('created_at', '=', place.createdAt), where('id', '<', place.id)]),
      ]),
    )
  }
  const rows = await query
    .orderBy('created_at', 'desc')
    .orderBy('id', 'desc')
    .limit(limit + 1)
    .execute()
  return toPage(rows, limit)
}

type StatusChange = Partial<
  Pick<
    SessionsTable,
    | 'error_code'
    | 'error_message'
    | 'sandbox_id'
    | 'ended_at'
    | 'checkpoint_id'
    | 'files_pending'
    | 'sdk_session_id'
  >
>

/**
 * Moves a session to another status if its present one allows that and this host still owns it: one statement,
 * so that the database decides every race. Throws `session_conflict` where it lost.
 */
export async function moveSession(
  db: Db,
  fence: Fence,
  to: SessionStatus,
  change: StatusChange = {},
  from: SessionStatus[] = statusesBefore(to),
): Promise<SessionRow> {
  const row = await db
    .updateTable('sessions')
    .set({ status: to, error_code: null, error_message: null, last_active_at: Date.now(), ...change })
    .where('tenant_id', '=', fence.tenantId)
    .where('id', '=', fence.sessionId)
    .where('owner_id', '=', fence.ownerId)
    .where('epoch', '=', fence.epoch)
    .where('status', 'in', from)
    .returningAll()
    .executeTakeFirst()
  if (!row) throw new AshError('session_conflict', `Session ${fence.sessionId} cannot become ${to} any more`)
  return row
}

/** For a change that does not matter any more where somebody else was quicker. */
export function ignoreConflict(error: unknown): void {
  if (!isAshError(error, 'session_conflict')) throw error
}

type Settings = Pick<
  SessionsTable,
  | 'sdk_session_id'
  | 'model_usage'
  | 'network'
  | 'budget'
  | 'credentials'
  | 'checkpoint_settings'
  | 'auto_resume'
  | 'checkpoint_id'
  | 'files_pending'
  | 'sandbox_id'
  | 'last_active_at'
>

/** Changes what has no rules of its own; nothing where another host has taken the session. */
export async function updateSession(db: Db, fence: Fence, change: Partial<Settings>): Promise<void> {
  await db
    .updateTable('sessions')
    .set(change)
    .where('tenant_id', '=', fence.tenantId)
    .where('id', '=', fence.sessionId)
    .where('epoch', '=', fence.epoch)
    .execute()
}

export async function freeUid(db: Db, fence: Fence): Promise<void> {
  await db
    .updateTable('sessions')
    .set({ host_uid: null })
    .where('tenant_id', '=', fence.tenantId)
    .where('id', '=', fence.sessionId)
    .execute()
}

/** For a session that never came to be. */
export async function deleteSession(db: Db, fence: Fence): Promise<void> {
  await db
    .deleteFrom('sessions')
    .where('tenant_id', '=', fence.tenantId)
    .where('id', '=', fence.sessionId)
    .where('owner_id', '=', fence.ownerId)
    .execute()
}

/** What a host does first: takes back its sessions under a new epoch, so that nothing older can write to them. */
export async function reclaimSessions(db: Db, ownerId: string): Promise<SessionRow[]> {
  // Paused ones may have kept a sandbox; it died with the server.
  await db
    .updateTable('sessions')
    .set((row) => ({ sandbox_id: null, epoch: row('epoch', '+', 1) }))
    .where('owner_id', '=', ownerId)
    .where('status', '=', 'paused')
    .where('sandbox_id', 'is not', null)
    .execute()
  return db
    .updateTable('sessions')
    .set((row) => ({ sandbox_id: null, epoch: row('epoch', '+', 1) }))
    .where('owner_id', '=', ownerId)
    .where('status', 'in', ['starting', 'active'])
    .returningAll()
    .execute()
}

/** Sessions of this host that have ended, and that still have something. */
export async function listHalfEnded(db: Db, ownerId: string): Promise<SessionRow[]> {
  return db
    .selectFrom('sessions')
    .selectAll()
    .where('owner_id', '=', ownerId)
    .where('status', '=', 'ended')
    .where((where) =>
      where.or([
        where('host_uid', 'is not', null),
        where.exists(
          where
            .selectFrom('checkpoints')
            .select('checkpoints.id')
            .whereRef('checkpoints.session_id', '=', 'sessions.id'),
        ),
      ]),
    )
    .execute()
}

/** Sessions of this host for one execution that nobody has used for their idle time, or that of the server, nor waits for. */
export async function listUnusedEphemeral(
  db: Db,
  ownerId: string,
  now: number,
  idleTimeoutMs: number,
): Promise<Pick<SessionRow, 'id' | 'tenant_id'>[]> {
  return db
    .selectFrom('sessions')
    .select(['id', 'tenant_id'])
    .where('owner_id', '=', ownerId)
    .where('mode', '=', 'ephemeral')
    .where('status', '!=', 'ended')
    .where(sql<boolean>`last_active_at + coalesce(idle_timeout_ms, ${idleTimeoutMs}) < ${now}`)
    .where((where) =>
      where.not(
        where.exists(
          where
            .selectFrom('executions')
            .select('executions.id')
            .whereRef('executions.session_id', '=', 'sessions.id')
            .where('executions.finished_at', 'is', null),
        ),
      ),
    )
    .execute()
}

/** Ids of the sessions whose files this host must keep. */
export async function listOwnedIds(db: Db, ownerId: string): Promise<Set<string>> {
  const rows = await db
    .selectFrom('sessions')
    .select('id')
    .where('owner_id', '=', ownerId)
    .where('status', '!=', 'ended')
    .execute()
  return new Set(rows.map((row) => row.id))
}

/** What the session has used of the model so far. */
function usageOf({ model_usage }: SessionRow): ModelUsage {
  if (model_usage === null)
    return {
      requests: 0,
      inputTokens: 0,
      outputTokens: 0,
      cacheCreationTokens: 0,
      cacheReadTokens: 0,
      usd: 0,
    }
  return ModelUsage.parse((JSON.parse(model_usage) as BudgetState).session)
}

/** What is shown with a row and is not in it. */
interface Shown {
  env: Record<string, '***'>
  sandboxState: SandboxState
  /** Of a session that says nothing itself. */
  idleTimeoutMs: number
}

/** The row as clients see it. */
export function toSession(row: SessionRow, { env, sandboxState, idleTimeoutMs }: Shown): Session {
  const config = JSON.parse(row.config) as AgentConfig
  const { languages, timeoutMs } = readRunSettings(row)
  return {
    id: row.id,
    tenantId: row.tenant_id,
    ...(row.agent_name !== null && { agentName: row.agent_name }),
    ...(row.agent_version !== null && { agentVersion: row.agent_version }),
    ...(row.template !== null && { template: row.template }),
    mode: row.mode,
    ...(row.agent_id !== null && { agentId: row.agent_id }),
    languages,
    timeout: timeoutMs,
    idleTimeout: row.idle_timeout_ms ?? idleTimeoutMs,
    ...(row.lifetime_ms !== null && { lifetime: row.lifetime_ms }),
    provider: row.provider,
    isolation: row.isolation as Session['isolation'],
    status: row.status,
    ...(row.parent_session_id !== null && { parentSessionId: row.parent_session_id }),
    ...(row.checkpoint_id !== null && { checkpointId: row.checkpoint_id }),
    sandboxState,
    ...(row.sandbox_id !== null && { sandboxId: row.sandbox_id }),
    ...(config.model !== undefined && { model: config.model }),
    config,
    limits: storedLimits(row.limits),
    network: JSON.parse(row.network) as Network,
    credentials: JSON.parse(row.credentials) as string[],
    checkpoints: JSON.parse(row.checkpoint_settings) as CheckpointSettings,
    autoResume: row.auto_resume === 1,
    ...(row.budget !== '{}' && { budget: JSON.parse(row.budget) as BudgetLimits }),
    usage: usageOf(row),
    env,
    createdAt: new Date(row.created_at).toISOString(),
    lastActiveAt: new Date(row.last_active_at).toISOString(),
    ...(row.ended_at !== null && { endedAt: new Date(row.ended_at).toISOString() }),
    ...(row.error_code !== null && { error: { code: row.error_code, message: row.error_message ?? '' } }),
  }
}
