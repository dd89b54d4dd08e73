import { BridgeInterpreter, type Interpreter } from '@ash-ai/sandbox'
import { isAshError, type RunOutcome } from '@ash-ai/shared'
import type { LiveSession } from '../sessions/live-sessions.ts'
import { updateSession } from '../sessions/session-queries.ts'
import { useSession } from '../sessions/session-wake.ts'
import { cancelAll } from './end-execution.ts'
import type { ExecutionDeps } from './executions.ts'
import type { Job } from './job.ts'
import { type Kernel, type Kernels, kernelsOf } from './kernels.ts'
import { type Ground, runAttempt, type Taken } from './run-attempt.ts'

/** `lastActiveAt` is at most this much behind: a write for every run would cost more than it tells. */
const ACTIVITY_RESOLUTION_MS = 5_000

/** Runs in the sandbox of the session, which is woken if need be. */
export async function runInSession(deps: ExecutionDeps, job: Job): Promise<void> {
  const { tenant_id, session_id } = job.row
  const wasAwake = deps.live.get(session_id) !== undefined
  await useSession(deps, tenant_id, session_id, async (live) => {
    if (job.isOver) return
    announce(deps, live)
    // The sandbox stands still while files are saved.
    if (live.saving !== undefined) await live.saving
    const { kernel, language } = job.row
    const kernels = kernelsOf(live)
    const findKernel = kernel === null ? undefined : () => kernels.get(language, kernel)
    // Before anything is stored: where there are too many, who waits for the run can be told.
    let found = await findKernel?.()
    const take = async () => {
      if (!findKernel) return takeFresh(live, job)
      const taken = takeKernel(kernels, found ?? (await findKernel()))
      // Where it turns out to have ended, there is another the next time.
      found = undefined
      return taken
    }
    const ground: Ground = {
      path: wasAwake ? 'reuse' : 'cold',
      take,
      isOutOfMemory: () => live.sandbox.hasJustKilled(),
    }
    await runAttempt(deps, job, ground)
    // While the session is still held: whoever is next must not find it evicted.
    job.place.leave()
    noteActivity(deps, live)
  })
}

/** Whoever pauses or ends the session can stop what runs in it. */
function announce(deps: ExecutionDeps, live: LiveSession): void {
  const { sessionId } = live.fence
  live.executions ??= {
    cancelAll: (reason) => cancelAll(deps, sessionId, reason),
    get size() {
      return deps.runs.of(sessionId).length
    },
  }
}

async function takeFresh({ sandbox }: LiveSession, { row }: Job): Promise<Taken> {
  const interpreter = await BridgeInterpreter.start(sandbox, row.language)
  return { interpreter, release: () => stopQuietly(interpreter) }
}

/** One that is gone with its sandbox is no fault of the run. */
async function stopQuietly(interpreter: Interpreter): Promise<void> {
  await interpreter.stop().catch((error: unknown) => {
    if (!isAshError(error)) throw error
  })
}

function takeKernel(kernels: Kernels, { kernel, isNew }: { kernel: Kernel; isNew: boolean }): Taken {
  kernel.isBusy = true
  const release = async (outcome: RunOutcome | undefined) => {
    kernel.isBusy = false
    kernel.runs++
    kernel.lastUsedAt = Date.now()
    // Without an outcome nobody knows what it holds.
    if (!outcome) await stopQuietly(kernel.interpreter)
    if (!outcome || outcome.isOver) kernels.forget(kernel)
  }
  return { interpreter: kernel.interpreter, isNewKernel: isNew, release }
}

/** Not awaited: the client may send its next run now. */
function noteActivity(deps: ExecutionDeps, live: LiveSession): void {
  const now = Date.now()
  if (now - live.lastNotedMs < ACTIVITY_RESOLUTION_MS) return
  live.lastNotedMs = now
  updateSession(deps.db, live.fence, { last_active_at: now }).catch((error: unknown) =>
    deps.log.error({ err: error }, 'session not touched'),
  )
}
