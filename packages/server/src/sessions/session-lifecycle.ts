import { randomInt, randomUUID } from 'node:crypto'
import { Budget, type BudgetState, type Owner, parsePolicy, type Sandbox, sessionDirs } from '@ash-ai/sandbox'
import {
  type AgentConfig,
  AshError,
  type BudgetLimits,
  isAshError,
  type Limits,
  type Network,
  type SessionCreate,
  type SessionPatch,
  sdkOptions,
} from '@ash-ai/shared'
import { installedEnv } from '../agents/agent-install.ts'
import type { UsedLayer } from '../agents/agent-layers.ts'
import { type AgentForSession, getAgentForSession } from '../agents/agent-queries.ts'
import { assertCredentials } from '../credentials/credential-queries.ts'
import type { Db } from '../db/open-db.ts'
import { acquireLayer, setUpAgent } from './agent-setup.ts'
import { effectiveLimits, storedLimits } from './effective-limits.ts'
import type { LiveSession } from './live-sessions.ts'
import { PendingPermissions } from './pending-permissions.ts'
import { findSessionCredential } from './session-credentials.ts'
import type { SessionDeps } from './session-deps.ts'
import { noteEvent, noteStatus } from './session-notes.ts'
import {
  deleteSession,
  fenceOf,
  freeUid,
  getSession,
  ignoreConflict,
  insertSession,
  moveSession,
  type SessionRow,
  sessionNotFound,
  updateSession,
} from './session-queries.ts'
import { storeEventually } from './store-eventually.ts'
import { relayUnsolicited } from './turns.ts'

const UID_TRIES = 50

/** Makes a session and its sandbox. A session whose sandbox cannot start stays behind as `error`, with the reason. */
export async function createSession(
  deps: SessionDeps,
  tenantId: string,
  request: SessionCreate,
): Promise<SessionRow> {
  const { agent: agentName, agentVersion, env = {}, ...config } = request
  await deps.assertSandboxing()
  const agent = await getAgentForSession(deps, tenantId, agentName, agentVersion)
  deps.pool.assertRoom()
  const limits = effectiveLimits(deps.limits, agent.config.limits, config.limits)
  const settings = { ...agent.config, ...config }
  parsePolicy(settings.network ?? 'none') // Refuses what it cannot read.
  await assertCredentials(deps.db, tenantId, settings.credentials)
  const row = await insertNewSession(deps, tenantId, agent, { env, config, limits, settings })
  await wakeSession(deps, tenantId, row.id).catch(async (error: unknown) => {
    // Refused, not failed: nothing of it may stay. Another session was quicker to the last slot.
    if (isAshError(error, 'pool_full')) await deleteSession(deps.db, fenceOf(row))
    throw error
  })
  return getSession(deps.db, tenantId, row.id)
}

interface NewSession {
  env: Record<string, string>
  config: AgentConfig
  limits: Limits
  /** The agent's configuration with the session's over it. */
  settings: AgentConfig
}

async function insertNewSession(
  deps: SessionDeps,
  tenantId: string,
  agent: { name: string; version: number },
  { env, config, limits, settings }: NewSession,
): Promise<SessionRow> {
  const id = randomUUID()
  const now = Date.now()
  const row: SessionRow = {
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
  for (let tries = 0; tries < UID_TRIES; tries++) {
    // Random, so that a uid is not used again soon after its session ended.
    const uids = deps.sandboxUids
    row.host_uid = uids ? uids.base + randomInt(uids.count) : null
    if (await insertSession(deps.db, row)) return row
  }
  throw new AshError('pool_full', 'No host user is free for another session. Raise ASH_SANDBOX_UID_COUNT.')
}

/** The session with its sandbox, which is started if there is none. */
export async function wakeSession(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
): Promise<LiveSession> {
  // Before the start is shared: another tenant's attempt must not become the owner's.
  if (!deps.live.get(sessionId)) await getSession(deps.db, tenantId, sessionId)
  const live = await deps.live.wake(sessionId, async () => {
    const row = await getOpenSession(deps.db, tenantId, sessionId)
    try {
      return await startLiveSession(deps, row)
    } catch (error) {
      await noteFailedStart(deps, row, error)
      throw error
    }
  })
  // One that is awake is found by its id alone.
  if (live.fence.tenantId !== tenantId) throw sessionNotFound(sessionId)
  return live
}

async function startLiveSession(deps: SessionDeps, row: SessionRow): Promise<LiveSession> {
  await deps.assertSandboxing()
  const fence = fenceOf(row)
  const agent = await getAgentForSession(deps, row.tenant_id, row.agent_name, row.agent_version)
  if (row.status !== 'starting') await moveSession(deps.db, fence, 'starting')
  const budget = openBudget(deps, row)
  const log = await deps.logs.get(fence)
  const layer = await acquireLayer(deps, row, { agent, owner: ownerOf(row) }, log)
  const sandbox = await startSandbox(deps, row, agent, budget, layer).finally(() => layer?.release())
  try {
    const dirs = sessionDirs(deps.dataDir, row.id)
    const policy = parsePolicy(JSON.parse(row.network) as Network)
    await setUpAgent(deps.install, { sandbox, agent, log, dirs, policy })
    await moveSession(deps.db, fence, 'active', { sandbox_id: sandbox.id })
    await noteStatus(deps, fence, 'active')
    const live: LiveSession = {
      fence,
      sandbox,
      budget,
      log,
      options: sdkOptions({ ...agent.config, ...(JSON.parse(row.config) as AgentConfig) }),
      sdkSessionId: row.sdk_session_id,
      lastNotedMs: Date.now(),
      keysForgottenMs: 0,
      turn: undefined,
      permissions: new PendingPermissions(),
      gone: Promise.resolve(),
    }
    live.gone = watchSandbox(deps, live)
    void relayUnsolicited(deps, live)
    return live
  } catch (error) {
    await sandbox.stop()
    throw error
  }
}

async function startSandbox(
  deps: SessionDeps,
  row: SessionRow,
  agent: AgentForSession,
  budget: Budget,
  used: UsedLayer | undefined,
): Promise<Sandbox> {
  const startedMs = performance.now()
  const env = deps.secrets.open(row.env_sealed, envAad(row.tenant_id, row.id)) as Record<string, string>
  const dirs = sessionDirs(deps.dataDir, row.id)
  const sandbox = await deps.pool.acquire({
    sandboxId: randomUUID(),
    dirs,
    agentDir: agent.dir,
    layer: used?.layer,
    owner: ownerOf(row),
    limits: storedLimits(row.limits),
    network: parsePolicy(JSON.parse(row.network) as Network),
    budget,
    findCredential: (name) => findSessionCredential(deps, row, name),
    onDenied: (denied) => void noteEvent(deps, fenceOf(row), 'egress_denied', denied),
    onLimit: (hit) => void noteEvent(deps, fenceOf(row), 'limit', hit),
    setup: {
      sessionId: row.id,
      ...(row.sdk_session_id !== null && { sdkSessionId: row.sdk_session_id }),
      env: { ...thriftyEnv(row), ...installedEnv(deps.install, agent, dirs), ...agent.env, ...env },
    },
  })
  deps.metrics.sandboxStartSeconds.observe((performance.now() - startedMs) / 1000)
  deps.metrics.sandboxStarts.inc({ outcome: 'ok' })
  return sandbox
}

async function noteFailedStart(deps: SessionDeps, row: SessionRow, error: unknown): Promise<void> {
  deps.metrics.sandboxStarts.inc({ outcome: 'failed' })
  const { code, message } = describe(error)
  deps.log.error({ sessionId: row.id, code, err: error }, 'sandbox did not start')
  // Not stored where the session was ended or taken over meanwhile.
  await moveSession(deps.db, fenceOf(row), 'error', { error_code: code, error_message: message }).catch(
    ignoreConflict,
  )
}

function openBudget({ prices }: SessionDeps, row: SessionRow): Budget {
  const state = row.model_usage === null ? undefined : (JSON.parse(row.model_usage) as BudgetState)
  return new Budget(prices, JSON.parse(row.budget) as BudgetLimits, state)
}

/** By default `claude` asks for room for 128,000 tokens with each request, more than a small budget holds. */
function thriftyEnv(row: SessionRow): Record<string, string> {
  const { maxUsd, maxTokens } = JSON.parse(row.budget) as BudgetLimits
  return maxUsd === undefined && maxTokens === undefined ? {} : { CLAUDE_CODE_MAX_OUTPUT_TOKENS: '8000' }
}

/** Changes what a session may reach or spend, at once where it is live. */
export function patchSession(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  patch: SessionPatch,
): Promise<SessionRow> {
  return deps.live.exclusive(sessionId, async () => {
    const row = await getOpenSession(deps.db, tenantId, sessionId)
    const policy = patch.network && parsePolicy(patch.network)
    await assertCredentials(deps.db, tenantId, patch.credentials)
    await updateSession(deps.db, fenceOf(row), {
      ...(patch.network && { network: JSON.stringify(patch.network) }),
      ...(patch.budget && { budget: JSON.stringify(patch.budget) }),
      ...(patch.credentials && { credentials: JSON.stringify(patch.credentials) }),
    })
    const live = deps.live.get(sessionId)
    if (policy) live?.sandbox.setNetwork(policy)
    if (patch.budget) live?.budget.setLimits(patch.budget)
    return getSession(deps.db, tenantId, sessionId)
  })
}

/** A sandbox that ends by itself leaves the session in `error`; the next call that needs one starts another. */
async function watchSandbox(deps: SessionDeps, live: LiveSession): Promise<void> {
  const { code, message } = await live.sandbox.bridge.closed
  await live.sandbox
    .stop()
    .catch((error: unknown) =>
      deps.log.error({ err: error, sessionId: live.fence.sessionId }, 'a sandbox did not stop cleanly'),
    )
  await live.turn?.ended
  if (!deps.live.release(live)) return
  deps.log.warn({ sessionId: live.fence.sessionId, sandboxId: live.sandbox.id, code }, 'sandbox ended')
  const change = { sandbox_id: null, error_code: code, error_message: message }
  // The session cannot wake before this is stored: it would still be `active`.
  if (await storeEventually(deps, () => moveSession(deps.db, live.fence, 'error', change)))
    await storeEventually(deps, () => noteStatus(deps, live.fence, 'error'))
}

/** Stops the sandbox and leaves the session ready to go on; its files stay. */
export function pauseSession(deps: SessionDeps, tenantId: string, sessionId: string): Promise<SessionRow> {
  return deps.live.exclusive(sessionId, async () => {
    const row = await getOpenSession(deps.db, tenantId, sessionId)
    const live = deps.live.get(sessionId)
    if (live?.turn || deps.waiting.has(sessionId))
      throw new AshError('turn_in_progress', 'The session is working on a message. Interrupt it first.')
    if (live && deps.live.release(live)) await live.sandbox.stop()
    if (row.status === 'paused') return row
    const paused = await moveSession(deps.db, fenceOf(row), 'paused', { sandbox_id: null })
    await noteStatus(deps, fenceOf(row), 'paused')
    return paused
  })
}

/** Ends a session: no sandbox and no files remain, the log does. Ending an ended session changes nothing. */
export function endSession(deps: SessionDeps, tenantId: string, sessionId: string): Promise<SessionRow> {
  return deps.live.exclusive(sessionId, async () => {
    const row = await getSession(deps.db, tenantId, sessionId)
    if (row.status === 'ended') return row
    const ended = await moveSession(deps.db, fenceOf(row), 'ended', {
      sandbox_id: null,
      ended_at: Date.now(),
    })
    const live = deps.live.get(sessionId)
    if (live && deps.live.release(live)) {
      await live.sandbox.stop()
      await live.turn?.ended
    }
    await deps.disk.remove(sessionDirs(deps.dataDir, sessionId))
    // Only now may another session have the uid: nothing on disk belongs to it any more.
    await freeUid(deps.db, fenceOf(row))
    await noteStatus(deps, fenceOf(row), 'ended')
    return ended
  })
}

/** Throws where the session does not exist or has ended. */
export async function getOpenSession(db: Db, tenantId: string, sessionId: string): Promise<SessionRow> {
  const row = await getSession(db, tenantId, sessionId)
  if (row.status === 'ended') throw new AshError('session_ended', `Session ${sessionId} has ended`)
  return row
}

/** Host user of a session's files, where the server can switch users. */
export function ownerOf(row: SessionRow): Owner | undefined {
  return row.host_uid === null ? undefined : { uid: row.host_uid, gid: row.host_uid }
}

export const envAad = (tenantId: string, sessionId: string) => `session-env:${tenantId}:${sessionId}`

function describe(error: unknown): { code: string; message: string } {
  if (isAshError(error)) return { code: error.code, message: error.message }
  return {
    code: 'sandbox_start_failed',
    message: 'The sandbox did not start; the log of the server has the reason',
  }
}
