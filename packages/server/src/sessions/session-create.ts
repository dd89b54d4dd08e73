import { randomInt, randomUUID } from 'node:crypto'
import { parsePolicy } from '@ash-ai/sandbox'
import {
  type AgentConfig,
  AshError,
  type BudgetLimits,
  isAshError,
  type Limits,
  type Network,
  type SessionCreate,
} from '@ash-ai/shared'
import { type AgentForSession, getAgentForSession } from '../agents/agent-queries.ts'
import { assertCredentials } from '../credentials/credential-queries.ts'
import type { Db } from '../db/open-db.ts'
import type { Spare } from '../sandboxes/spare.ts'
import { effectiveLimits } from './effective-limits.ts'
import { envAad } from './open-session.ts'
import type { SessionDeps } from './session-deps.ts'
import { deleteSession, fenceOf, getSession, insertSession, type SessionRow } from './session-queries.ts'
import { becomeLive, identityOf, poolUse, setupOf, useSession } from './session-wake.ts'

const UID_TRIES = 50

/**
 * Makes a session and its sandbox: a spare one where one is ready, else a new one. A session whose sandbox cannot
 * start stays behind as `error`, with the reason.
 */
export async function createSession(
  deps: SessionDeps,
  tenantId: string,
  request: SessionCreate,
): Promise<SessionRow> {
  const { agent: agentName, agentVersion, env = {}, ...config } = request
  await deps.assertSandboxing()
  const agent = await getAgentForSession(deps, tenantId, agentName, agentVersion)
  const limits = effectiveLimits(deps.limits, agent.config.limits, config.limits)
  const settings = { ...agent.config, ...config }
  parsePolicy(settings.network ?? 'none') // Refuses what it cannot read.
  await assertCredentials(deps.db, tenantId, settings.credentials)
  const make = (id: string) => newRow(deps, tenantId, agent, { id, env, config, limits, settings })
  const spare = deps.spares.claim({ tenantId, agent, limits })
  try {
    const claimed = spare && (await tryClaim(deps, make(spare.sessionId), agent, spare))
    deps.metrics.creates.inc({ path: claimed ? 'warm' : 'cold' })
    return claimed ?? (await startCold(deps, make(randomUUID())))
  } finally {
    // After the reply.
    setImmediate(() => deps.spares.refill(tenantId, agent))
  }
}

async function startCold(deps: SessionDeps, row: SessionRow): Promise<SessionRow> {
  deps.pool.assertRoom()
  await insertWithUid(deps, row)
  await useSession(deps, row.tenant_id, row.id, async () => {}).catch(async (error: unknown) => {
    // Refused, not failed: nothing of it may stay. Another session was quicker to the last slot.
    if (isAshError(error, 'pool_full')) await deleteSession(deps.db, fenceOf(row))
    throw error
  })
  return getSession(deps.db, row.tenant_id, row.id)
}

/** Makes a spare the sandbox of a session. Undefined where it turns out to be of no use; then nothing of it is left. */
async function tryClaim(
  deps: SessionDeps,
  row: SessionRow,
  agent: AgentForSession,
  spare: Spare,
): Promise<SessionRow | undefined> {
  let active: SessionRow | undefined
  const start = async () => {
    const { live, row: stored } = await claimSpare(deps, { ...row, host_uid: spare.uid }, agent, spare)
    active = stored
    return live
  }
  try {
    await deps.live.wake(row.id, start, neverFrozen)
    return active
  } catch (error) {
    deps.log.error({ err: error, sessionId: row.id }, 'a spare sandbox could not become a session')
    await deps.spares.discard(spare)
    await deleteSession(deps.db, fenceOf(row))
    return undefined
  }
}

const neverFrozen = () => Promise.reject(new Error('a new session has no frozen sandbox'))

async function claimSpare(deps: SessionDeps, row: SessionRow, agent: AgentForSession, spare: Spare) {
  const { budget, sandbox: prepared, isSetUp, notes } = spare
  spare.bind(identityOf(deps, row))
  budget.setLimits(JSON.parse(row.budget) as BudgetLimits)
  prepared.setNetwork(parsePolicy(JSON.parse(row.network) as Network))
  deps.pool.claim(prepared.id, poolUse(deps, row))
  const sandbox = await alongside(prepared.configure(setupOf(deps, row, agent)), insertNew(deps, row))
  const log = await deps.logs.get(fenceOf(row))
  for (const { type, data } of notes) await log.append(type, null, JSON.stringify(data))
  return becomeLive(deps, row, { agent, sandbox, budget, log, isSetUp, cameBy: 'none' })
}

/** The result of the first; both are over, also where one fails. */
async function alongside<Result>(work: Promise<Result>, other: Promise<void>): Promise<Result> {
  await Promise.allSettled([work, other])
  await other
  return work
}

async function insertNew({ db }: SessionDeps, row: SessionRow): Promise<void> {
  if (!(await insertSession(db, row))) throw new Error('the host user of a spare belongs to a session')
}

interface NewSession {
  id: string
  env: Record<string, string>
  config: AgentConfig
  limits: Limits
  /** The agent's configuration with the session's over it. */
  settings: AgentConfig
}

function newRow(
  deps: SessionDeps,
  tenantId: string,
  agent: { name: string; version: number },
  { id, env, config, limits, settings }: NewSession,
): SessionRow {
  const now = Date.now()
  return {
    id,
    tenant_id: tenantId,
    agent_name: agent.name,
    agent_version: agent.version,
    status: 'starting',
    provider: deps.provider.name,
    isolation: deps.provider.isolation,
    config: JSON.stringify(config),
    limits: JSON.stringify(limits),
    network: JSON.stringify(settings.network ?? 'none'),
    budget: JSON.stringify(settings.budget ?? {}),
    credentials: JSON.stringify(settings.credentials ?? []),
    checkpoint_settings: JSON.stringify(settings.checkpoints ?? {}),
    auto_resume: settings.autoResume === false ? 0 : 1,
    parent_session_id: null,
    fork_seq: null,
    checkpoint_id: null,
    files_pending: 0,
    model_usage: null,
    env_sealed: deps.secrets.seal(env, envAad(tenantId, id)),
    sdk_session_id: null,
    owner_id: deps.hostId,
    epoch: 1,
    host_uid: null,
    sandbox_id: null,
    error_code: null,
    error_message: null,
    created_at: now,
    last_active_at: now,
    ended_at: null,
  }
}

/** Gives the session a host user that no other has, and stores it; together with it, what `also` stores. */
export async function insertWithUid(
  deps: SessionDeps,
  row: SessionRow,
  also?: (db: Db) => Promise<void>,
): Promise<SessionRow> {
  const uids = deps.sandboxUids
  for (let tries = 0; tries < UID_TRIES; tries++) {
    // Random, so that a uid is not used again soon after its session ended.
    row.host_uid = uids ? uids.base + randomInt(uids.count) : null
    if (row.host_uid !== null && deps.spares.usesUid(row.host_uid)) continue
    if (await insertBoth(deps.db, row, also)) return row
  }
  throw new AshError('pool_full', 'No host user is free for another session. Raise ASH_SANDBOX_UID_COUNT.')
}

async function insertBoth(db: Db, row: SessionRow, also?: (db: Db) => Promise<void>): Promise<boolean> {
  if (!also) return insertSession(db, row)
  return db.transaction().execute(async (transaction) => {
    const isStored = await insertSession(transaction, row)
    if (isStored) await also(transaction)
    return isStored
  })
}
