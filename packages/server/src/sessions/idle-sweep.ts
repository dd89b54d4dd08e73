import { isBusy, type LiveSession, noteUse } from './live-sessions.ts'
import type { SessionDeps } from './session-deps.ts'
import { endSession } from './session-lifecycle.ts'
import { evictSession, pauseSession } from './session-pause.ts'
import { listUnusedEphemeral } from './session-queries.ts'

const SWEEP_MAX_MS = 1_000
const UNUSED_SWEEP_MAX_MS = 10_000
/** What is at work when its sandbox is due to be replaced may take so much longer. */
const LIFETIME_GRACE_MS = 3_600_000

/**
 * Sessions that have done nothing for their idle time keep no process, and none keeps its sandbox beyond its lifetime;
 * their files stay. Returns what ends the sweep.
 */
export function startIdleSweep(deps: SessionDeps): () => void {
  const { idleTimeoutMs, codeIdleTimeoutMs } = deps
  const endSweep = repeat(() => sweep(deps), Math.min(SWEEP_MAX_MS, idleTimeoutMs / 4, codeIdleTimeoutMs / 4))
  const endUnused = repeat(
    () => endUnusedSessions(deps),
    Math.min(UNUSED_SWEEP_MAX_MS, codeIdleTimeoutMs / 4),
  )
  return () => {
    endSweep()
    endUnused()
  }
}

/** Never twice at once. */
function repeat(work: () => Promise<void>, intervalMs: number): () => void {
  let isWorking = false
  const timer = setInterval(() => {
    if (isWorking) return
    isWorking = true
    void work().finally(() => {
      isWorking = false
    })
  }, intervalMs).unref()
  return () => clearInterval(timer)
}

async function sweep(deps: SessionDeps): Promise<void> {
  for (const live of deps.live.all()) {
    noteTraffic(deps, live)
    await giveUp(deps, live).catch((error: unknown) =>
      deps.log.error({ err: error, sessionId: live.fence.sessionId }, 'an idle session was not paused'),
    )
  }
}

async function giveUp(deps: SessionDeps, live: LiveSession): Promise<void> {
  const now = performance.now()
  const olderMs = now - live.startedMs - live.lifetimeMs
  if (olderMs > LIFETIME_GRACE_MS && isBusy(deps, live)) return stopOld(deps, live)
  if (olderMs > 0) await evictSession(deps, live, 'lifetime')
  else if (now - live.lastUsedMs > live.idleTimeoutMs) await evictSession(deps, live, 'idle')
}

/** Not awaited by the sweep: what is under way has its time to end. */
function stopOld(deps: SessionDeps, live: LiveSession): void {
  if (live.isLeaving) return
  const { tenantId, sessionId } = live.fence
  deps.metrics.evictions.inc({ reason: 'lifetime' })
  pauseSession(deps, tenantId, sessionId, { stops: true }).catch((error: unknown) =>
    deps.log.error({ err: error, sessionId }, 'a session beyond its lifetime was not paused'),
  )
}

/** Sessions for one execution that never came: there is nothing in them to keep. */
async function endUnusedSessions(deps: SessionDeps): Promise<void> {
  try {
    const unused = await listUnusedEphemeral(deps.db, deps.hostId, Date.now(), deps.codeIdleTimeoutMs)
    for (const { tenant_id, id } of unused) if (!deps.live.get(id)) await endSession(deps, tenant_id, id)
  } catch (error) {
    deps.log.error({ err: error }, 'unused sessions were not ended')
  }
}

/** What runs on in the background and talks to somebody is at work, too. */
function noteTraffic(deps: SessionDeps, live: LiveSession): void {
  const traffic = live.sandbox.traffic()
  if (traffic === live.seenTraffic) return
  live.seenTraffic = traffic
  noteUse(deps, live)
}
