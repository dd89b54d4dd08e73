import { randomUUID } from 'node:crypto'
import { Budget, type BudgetState, parsePolicy, type Sandbox, sessionDirs } from '@ash-ai/sandbox'
import {
  type AgentConfig,
  AshError,
  type BudgetLimits,
  isAshError,
  type Network,
  type ResumePath,
  sdkOptions,
} from '@ash-ai/shared'
import { installedEnv } from '../agents/agent-install.ts'
import type { UsedLayer } from '../agents/agent-layers.ts'
import type { Blueprint } from '../agents/blueprint.ts'
import { prepareFiles } from '../checkpoints/session-files.ts'
import { acquireLayer, setUp } from './agent-setup.ts'
import { blueprintOf } from './blueprint-of.ts'
import { storedLimits } from './effective-limits.ts'
import type { EventLog } from './event-log.ts'
import { type LiveSession, noteUse } from './live-sessions.ts'
import { envAad, getOpenSession, ownerOf } from './open-session.ts'
import { PendingPermissions } from './pending-permissions.ts'
import { findSessionCredential } from './session-credentials.ts'
import type { SessionDeps } from './session-deps.ts'
import { noteEvent, noteStatus } from './session-notes.ts'
import { evictSession } from './session-pause.ts'
import {
  fenceOf,
  getSession,
  ignoreConflict,
  moveSession,
  type SessionRow,
  sessionNotFound,
  updateSession,
} from './session-queries.ts'
import { storeEventually } from './store-eventually.ts'
import { thawSession } from './thaw-session.ts'
import { relayUnsolicited } from './turns.ts'

interface WakeOptions {
  /** Somebody asked for it to be awake: also a session that does not wake by itself does. */
  isResume?: boolean
  /** Hears how the session is stored, where that is all it took. */
  onThawed?: (row: SessionRow) => void
}

/** Uses the sandbox of a session, which is woken if need be. Meanwhile it is neither paused nor evicted. */
export async function useSession<Result>(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  work: (live: LiveSession) => Promise<Result>,
  options: WakeOptions = {},
): Promise<Result> {
  for (;;) {
    const live = deps.live.awake(sessionId) ?? (await wakeSession(deps, tenantId, sessionId, options))
    // Paused or ended in that moment: there is another sandbox, or a reason why there is none.
    if (deps.live.awake(sessionId) !== live) continue
    // One that is awake is found by its id alone.
    if (live.fence.tenantId !== tenantId) throw sessionNotFound(sessionId)
    live.uses++
    noteUse(deps, live)
    try {
      return await work(live)
    } finally {
      live.uses--
      noteUse(deps, live)
    }
  }
}

/** Wakes a session because somebody asks for that; says how. */
export async function resumeSession(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
): Promise<{ row: SessionRow; resumed: ResumePath }> {
  if (deps.live.awake(sessionId)?.fence.tenantId === tenantId)
    return { row: await getSession(deps.db, tenantId, sessionId), resumed: 'none' }
  let thawed: SessionRow | undefined
  const options = { isResume: true, onThawed: (row: SessionRow) => (thawed = row) }
  try {
    const resumed = await useSession(deps, tenantId, sessionId, async ({ cameBy }) => cameBy, options)
    return { row: thawed ?? (await getSession(deps.db, tenantId, sessionId)), resumed }
  } catch (error) {
    if (!isAshError(error, 'session_ended')) throw error
    throw new AshError('session_gone', `Session ${sessionId} has ended and cannot be resumed`)
  }
}

async function wakeSession(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  { isResume = false, onThawed }: WakeOptions,
): Promise<LiveSession> {
  const paused = deps.live.get(sessionId)
  const isKnown = isResume && paused?.isPaused && paused.fence.tenantId === tenantId
  // Before a start is shared: another tenant's attempt must not become the owner's.
  if (!isKnown) assertWakes(await getSession(deps.db, tenantId, sessionId), isResume)
  const start = async () => {
    const row = await getOpenSession(deps.db, tenantId, sessionId)
    assertWakes(row, isResume)
    try {
      return await startLiveSession(deps, row)
    } catch (error) {
      await noteFailedStart(deps, row, error)
      throw error
    }
  }
  return deps.live.wake(sessionId, start, async (live) => {
    const row = await getOpenSession(deps.db, tenantId, sessionId)
    assertWakes(row, isResume)
    thawSession(deps, live, row)
    onThawed?.({ ...row, status: 'active' })
  })
}

/** A session may be made to wake only when somebody asks for that. */
function assertWakes({ id, status, auto_resume }: SessionRow, isResume: boolean): void {
  if (auto_resume === 1 || isResume || (status !== 'paused' && status !== 'error')) return
  throw new AshError('session_paused', `Session ${id} is ${status}. Resume it first.`)
}

async function startLiveSession(deps: SessionDeps, row: SessionRow): Promise<LiveSession> {
  await deps.assertSandboxing()
  const fence = fenceOf(row)
  const blueprint = await blueprintOf(deps, row)
  const isNew = row.status === 'starting'
  if (!isNew) await moveSession(deps.db, fence, 'starting', {}, ['active', 'paused', 'error'])
  const cameBy = await prepareFiles(deps, row)
  const budget = openBudget(deps, row)
  const log = await deps.logs.get(fence)
  const layer = await acquireLayer(deps, row, { blueprint, owner: ownerOf(row) }, log)
  const sandbox = await startSandbox(deps, row, blueprint, budget, layer).finally(() => layer?.release())
  if (!isNew) deps.metrics.resumes.inc({ path: cameBy })
  return (await becomeLive(deps, row, { blueprint, sandbox, budget, log, cameBy })).live
}

export interface Started {
  blueprint: Blueprint
  sandbox: Sandbox
  budget: Budget
  log: EventLog
  cameBy: ResumePath
  /** Nothing is left to be installed or run in it. */
  isSetUp?: boolean
}

/** What remains to be done when a session has its sandbox. */
export async function becomeLive(
  deps: SessionDeps,
  row: SessionRow,
  { blueprint, sandbox, budget, log, cameBy, isSetUp = false }: Started,
): Promise<{ live: LiveSession; row: SessionRow }> {
  const fence = fenceOf(row)
  try {
    const dirs = sessionDirs(deps.dataDir, row.id)
    const policy = parsePolicy(JSON.parse(row.network) as Network)
    if (!isSetUp) await setUp(deps.install, { sandbox, blueprint, log, dirs, policy })
    const [active] = await Promise.all([
      moveSession(deps.db, fence, 'active', { sandbox_id: sandbox.id }),
      noteStatus(deps, fence, 'active'),
    ])
    const live: LiveSession = {
      fence,
      sandbox,
      budget,
      log,
      options: sdkOptions({ ...blueprint.config, ...(JSON.parse(row.config) as AgentConfig) }),
      hasAgent: row.agent_name !== null,
      mode: row.mode,
      sdkSessionId: row.sdk_session_id,
      lastNotedMs: Date.now(),
      keysForgottenMs: 0,
      turn: undefined,
      executions: undefined,
      permissions: new PendingPermissions(),
      cameBy,
      uses: 0,
      lastUsedMs: performance.now(),
      startedMs: performance.now(),
      idleTimeoutMs: row.idle_timeout_ms ?? deps.idleTimeoutMs,
      lifetimeMs: row.lifetime_ms ?? Number.POSITIVE_INFINITY,
      seenTraffic: 0,
      isPaused: false,
      isLeaving: false,
      guests: new Set(),
      hurry: new AbortController(),
      savesTurns: savesTurns(row),
      saving: undefined,
      storing: undefined,
      gone: Promise.resolve(),
    }
    live.gone = watchSandbox(deps, live)
    void relayUnsolicited(deps, live)
    return { live, row: active }
  } catch (error) {
    await sandbox.stop()
    throw error
  }
}

export const savesTurns = ({ checkpoint_settings }: Pick<SessionRow, 'checkpoint_settings'>) =>
  (JSON.parse(checkpoint_settings) as { every?: string }).every !== 'pause'

async function startSandbox(
  deps: SessionDeps,
  row: SessionRow,
  blueprint: Blueprint,
  budget: Budget,
  used: UsedLayer | undefined,
): Promise<Sandbox> {
  const startedMs = performance.now()
  const sandbox = await deps.pool.acquire(
    {
      sandboxId: randomUUID(),
      dirs: sessionDirs(deps.dataDir, row.id),
      agentDir: blueprint.dir,
      layer: used?.layer,
      owner: ownerOf(row),
      limits: storedLimits(row.limits),
      network: parsePolicy(JSON.parse(row.network) as Network),
      budget,
      ...identityOf(deps, row),
      setup: setupOf(deps, row, blueprint),
    },
    poolUse(deps, row),
  )
  deps.metrics.sandboxStartSeconds.observe((performance.now() - startedMs) / 1000)
  deps.metrics.sandboxStarts.inc({ outcome: 'ok' })
  return sandbox
}

/** What the boundary of a sandbox asks and tells on behalf of its session. */
export const identityOf = (deps: SessionDeps, row: SessionRow) => ({
  findCredential: (name: string) => findSessionCredential(deps, row, name),
  onDenied: (denied: Parameters<typeof noteEvent>[3]) =>
    void noteEvent(deps, fenceOf(row), 'egress_denied', denied),
  onLimit: (hit: Parameters<typeof noteEvent>[3]) => void noteEvent(deps, fenceOf(row), 'limit', hit),
})

/** What makes a sandbox this session's. */
export function setupOf(deps: SessionDeps, row: SessionRow, blueprint: Blueprint) {
  const env = deps.secrets.open(row.env_sealed, envAad(row.tenant_id, row.id)) as Record<string, string>
  const dirs = sessionDirs(deps.dataDir, row.id)
  return {
    sessionId: row.id,
    ...(row.sdk_session_id !== null && { sdkSessionId: row.sdk_session_id }),
    env: { ...thriftyEnv(row), ...installedEnv(deps.install, blueprint, dirs), ...blueprint.env, ...env },
  }
}

/** Whom a slot of the pool is for, and how it is given up when another session needs it. */
export const poolUse = (deps: SessionDeps, row: SessionRow) => ({
  tenantId: row.tenant_id,
  sessionId: row.id,
  agentName: row.agent_name,
  agentVersion: row.agent_version,
  template: row.template ?? '',
  evict: async () => {
    const live = deps.live.get(row.id)
    return live !== undefined && evictSession(deps, live, 'capacity')
  },
})

async function noteFailedStart(deps: SessionDeps, row: SessionRow, error: unknown): Promise<void> {
  const { code, message } = describe(error)
  if (isAshError(error, 'pool_full')) {
    deps.log.info({ sessionId: row.id }, 'no room for a sandbox')
  } else {
    deps.metrics.sandboxStarts.inc({ outcome: 'failed' })
    deps.log.error({ sessionId: row.id, code, err: error }, 'sandbox did not start')
  }
  // For want of room nothing happened to it: it stays what it was.
  const isRefused = isAshError(error, 'pool_full') && (row.status === 'paused' || row.status === 'error')
  const failed = { status: 'error' as const, error_code: code, error_message: message }
  const { status, error_code, error_message } = isRefused ? row : failed
  // Not stored where the session was ended or taken over meanwhile.
  await moveSession(deps.db, fenceOf(row), status, { error_code, error_message }).catch(ignoreConflict)
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

/** A sandbox that ends by itself leaves the session in `error`; the next call that needs one starts another. */
async function watchSandbox(deps: SessionDeps, live: LiveSession): Promise<void> {
  const { code, message } = await live.sandbox.bridge.closed
  const wasPaused = live.isPaused
  await live.sandbox
    .stop()
    .catch((error: unknown) =>
      deps.log.error({ err: error, sessionId: live.fence.sessionId }, 'a sandbox did not stop cleanly'),
    )
  await live.turn?.ended
  // A checkpoint that was begun must not be stored after what becomes of the session next.
  await live.saving
  await live.storing
  if (!deps.live.release(live)) return
  deps.log.warn({ sessionId: live.fence.sessionId, sandboxId: live.sandbox.id, code }, 'sandbox ended')
  if (wasPaused) {
    // It had nothing to do: the session only becomes colder.
    await storeEventually(deps, () => updateSession(deps.db, live.fence, { sandbox_id: null }))
    return
  }
  const change = { sandbox_id: null, error_code: code, error_message: message }
  // The session cannot wake before this is stored: it would still be `active`.
  if (await storeEventually(deps, () => moveSession(deps.db, live.fence, 'error', change)))
    await storeEventually(deps, () => noteStatus(deps, live.fence, 'error'))
}

function describe(error: unknown): { code: string; message: string } {
  if (isAshError(error)) return { code: error.code, message: error.message }
  return {
    code: 'sandbox_start_failed',
    message: 'The sandbox did not start; the log of the server has the reason',
  }
}
