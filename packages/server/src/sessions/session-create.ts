import { randomInt, randomUUID } from 'node:crypto'
import { parsePolicy } from '@ash-ai/sandbox'
import {
  AshError,
  type BudgetLimits,
  isAshError,
  type Network,
  type NewSession,
  type SessionStatus,
} from '@ash-ai/shared'
import type { Blueprint } from '../agents/blueprint.ts'
import type { Db } from '../db/open-db.ts'
import { schedule } from '../sandboxes/schedule.ts'
import type { Spare } from '../sandboxes/spare.ts'
import { envAad } from './open-session.ts'
import type { SessionDeps } from './session-deps.ts'
import { noteStatus } from './session-notes.ts'
import { planSession, type SessionPlan } from './session-plan.ts'
import {
  deleteSession,
  fenceOf,
  findOpenSessionOf,
  getSession,
  insertSession,
  type SessionRow,
} from './session-queries.ts'
import { becomeLive, identityOf, poolUse, setupOf, useSession } from './session-wake.ts'

const UID_TRIES = 50

export interface CreatedSession {
  row: SessionRow
  /** False: it was open already for whom it was asked for. */
  isNew: boolean
}

/**
 * Makes a session and its sandbox: a spare one where one is ready, else a new one. A session whose sandbox cannot
 * start stays behind as `error`, with the reason. One that is for a single execution has a sandbox only then.
 */
export async function createSession(
  deps: SessionDeps,
  tenantId: string,
  request: NewSession,
): Promise<CreatedSession> {
  await deps.assertSandboxing()
  const plan = await planSession(deps, tenantId, request)
  const placement = schedule({
    mode: plan.mode,
    agentId: plan.agentId,
    openSession: await findOpen(deps, plan),
    spares: deps.spares.count(claimOf(plan)),
  })
  // One for a single run has no sandbox yet: where that comes from is settled with the run.
  if (plan.mode === 'persistent') deps.metrics.schedules.inc({ path: placement.path })
  if (placement.path === 'reuse') return reuse(plan, await getSession(deps.db, tenantId, placement.sessionId))
  try {
    return { row: await make(deps, plan), isNew: true }
  } catch (error) {
    // Somebody asked for the same at the same time, and the database took theirs.
    const winner = isAshError(error, 'session_conflict') ? await findOpen(deps, plan) : undefined
    if (!winner) throw error
    return reuse(plan, winner)
  }
}

/** What is open for somebody is theirs again, unless they ask for another agent. */
function reuse({ blueprint: { agent } }: SessionPlan, row: SessionRow): CreatedSession {
  if (row.agent_name === (agent?.name ?? null)) return { row, isNew: false }
  throw new AshError(
    'session_conflict',
    `Session ${row.id} is open for them with another agent. End it first.`,
  )
}

const findOpen = async ({ db }: SessionDeps, { tenantId, blueprint, agentId }: SessionPlan) =>
  agentId === undefined || blueprint.template === undefined
    ? undefined
    : findOpenSessionOf(db, tenantId, blueprint.template, agentId)

const claimOf = ({ spares, blueprint, limits }: SessionPlan) => ({ kind: spares.kind, blueprint, limits })

async function make(deps: SessionDeps, plan: SessionPlan): Promise<SessionRow> {
  const row = plan.mode === 'ephemeral' ? await makeEphemeral(deps, plan) : await makePersistent(deps, plan)
  await noteUnusedImage(deps, plan, row)
  return row
}

/** Its folders and its sandbox come with what is first done in it. */
async function makeEphemeral(deps: SessionDeps, plan: SessionPlan): Promise<SessionRow> {
  const row = await insertWithUid(deps, newRow(deps, plan, randomUUID(), 'active'))
  await noteStatus(deps, fenceOf(row), 'active')
  return row
}

async function makePersistent(deps: SessionDeps, plan: SessionPlan): Promise<SessionRow> {
  const { blueprint, spares } = plan
  const spare = deps.spares.claim(claimOf(plan))
  try {
    const claimed = spare && (await tryClaim(deps, newRow(deps, plan, spare.sessionId), blueprint, spare))
    deps.metrics.creates.inc({ path: claimed ? 'warm' : 'cold' })
    return claimed ?? (await startCold(deps, newRow(deps, plan, randomUUID())))
  } finally {
    // After the reply.
    setImmediate(() => deps.spares.noteUse(spares.kind, spares.warm))
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
  blueprint: Blueprint,
  spare: Spare,
): Promise<SessionRow | undefined> {
  let active: SessionRow | undefined
  const start = async () => {
    const { live, row: stored } = await claimSpare(deps, { ...row, host_uid: spare.uid }, blueprint, spare)
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

async function claimSpare(deps: SessionDeps, row: SessionRow, blueprint: Blueprint, spare: Spare) {
  const { budget, sandbox: prepared, isSetUp, notes } = spare
  spare.bind(identityOf(deps, row))
  budget.setLimits(JSON.parse(row.budget) as BudgetLimits)
  prepared.setNetwork(parsePolicy(JSON.parse(row.network) as Network))
  deps.pool.claim(prepared.id, poolUse(deps, row))
  const sandbox = await alongside(prepared.configure(setupOf(deps, row, blueprint)), insertNew(deps, row))
  const log = await deps.logs.get(fenceOf(row))
  for (const { type, data } of notes) await log.append(type, null, JSON.stringify(data))
  return becomeLive(deps, row, { blueprint, sandbox, budget, log, isSetUp, cameBy: 'none' })
}

/** The result of the first; both are over, also where one fails. */
async function alongside<Result>(work: Promise<Result>, other: Promise<void>): Promise<Result> {
  await Promise.allSettled([work, other])
  await other
  return work
}

async function insertNew({ db }: SessionDeps, row: SessionRow): Promise<void> {
  if (!(await insertSession(db, row))) throw new Error('the session, or its host user, is there already')
}

async function noteUnusedImage(deps: SessionDeps, { image, blueprint }: SessionPlan, row: SessionRow) {
  if (image === undefined) return
  const text = `The image of template ${blueprint.template} is not used: ${row.provider} runs no containers`
  const log = await deps.logs.get(fenceOf(row))
  await log.append('log', null, JSON.stringify({ level: 'info', source: 'template', text }))
}

/** The row of a planned session, not stored yet; `insertWithUid` does that. */
export function newRow(
  deps: SessionDeps,
  plan: SessionPlan,
  id: string,
  status: SessionStatus = 'starting',
): SessionRow {
  const { tenantId, blueprint, settings } = plan
  const now = Date.now()
  return {
    id,
    tenant_id: tenantId,
    agent_name: blueprint.agent?.name ?? null,
    agent_version: blueprint.agent?.version ?? null,
    template: blueprint.template ?? null,
    mode: plan.mode,
    external_id: null,
    agent_id: plan.agentId ?? null,
    run_settings: JSON.stringify(plan.run),
    idle_timeout_ms: plan.idleTimeoutMs,
    lifetime_ms: plan.lifetimeMs,
    status,
    provider: deps.provider.name,
    isolation: deps.provider.isolation,
    config: JSON.stringify(plan.config),
    limits: JSON.stringify(plan.limits),
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
    env_sealed: deps.secrets.seal(plan.env, envAad(tenantId, id)),
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

/**
 * Gives the session a host user that no other has, and stores it; together with it, what `also` stores. Throws
 * `session_conflict` where one is open already for whom this one is.
 */
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
    await assertNoneOpen(deps.db, row)
  }
  throw new AshError('pool_full', 'No host user is free for another session. Raise ASH_SANDBOX_UID_COUNT.')
}

async function assertNoneOpen(db: Db, { tenant_id, template, agent_id }: SessionRow): Promise<void> {
  if (agent_id === null || template === null) return
  const open = await findOpenSessionOf(db, tenant_id, template, agent_id)
  if (open) throw new AshError('session_conflict', `Session ${open.id} is open for ${agent_id} already`)
}

/** Stores a session that has its host user from a spare; together with it, what `also` stores. */
export async function insertClaimed(
  { db }: SessionDeps,
  row: SessionRow,
  also: (db: Db) => Promise<void>,
): Promise<void> {
  await db.transaction().execute(async (transaction) => {
    // One after the other on their way, but waited for together.
    const [isStored] = await Promise.all([insertSession(transaction, row), also(transaction)])
    if (!isStored) throw new Error('the session, or its host user, is there already')
  })
}

async function insertBoth(db: Db, row: SessionRow, also?: (db: Db) => Promise<void>): Promise<boolean> {
  if (!also) return insertSession(db, row)
  return db.transaction().execute(async (transaction) => {
    const isStored = await insertSession(transaction, row)
    if (isStored) await also(transaction)
    return isStored
  })
}
