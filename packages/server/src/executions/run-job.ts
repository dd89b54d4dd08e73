import { setTimeout as sleep } from 'node:timers/promises'
import { sessionDirs } from '@ash-ai/sandbox'
import { AshError, isAshError, MAX_ATTEMPTS, RETRY_DELAYS_MS, type RunError } from '@ash-ai/shared'
import { readRunSettings } from '../sessions/run-settings.ts'
import { deleteSession, fenceOf } from '../sessions/session-queries.ts'
import { storeEventually } from '../sessions/store-eventually.ts'
import { cancelled, endWith, moveJob } from './end-execution.ts'
import { deleteExecution } from './execution-queries.ts'
import { type ExecutionDeps, serverStopping } from './executions.ts'
import type { Job } from './job.ts'
import { runDirect, runsDirect } from './run-direct.ts'
import { runInSession } from './run-in-session.ts'

const ROOM_RETRY_MS = 1_000
const ROOM_WAIT_MS = 600_000

/** Brings an execution to its end, whatever that is. Settles without error. */
export async function runJob(deps: ExecutionDeps, job: Job): Promise<void> {
  try {
    await job.place.ready
    let noRoomAfter: number | undefined
    while (!job.isOver) {
      if (deps.runs.isStopping) throw serverStopping()
      try {
        await attempt(deps, job)
      } catch (error) {
        const isFull = isAshError(error, 'pool_full')
        noRoomAfter = isFull ? (noRoomAfter ?? performance.now() + ROOM_WAIT_MS) : undefined
        await afterFailure(deps, job, error, noRoomAfter)
      }
    }
  } catch (error) {
    if (!isAshError(error, 'server_stopping'))
      deps.log.error({ err: error, executionId: job.id }, 'an execution could not be brought to its end')
    job.refuse(error)
  } finally {
    // Nobody came to use it; its files go with the session.
    await job.spare?.sandbox.stop()
    job.place.leave()
    await job.ended.catch(() => {})
    deps.runs.remove(job)
  }
}

async function attempt(deps: ExecutionDeps, job: Job): Promise<void> {
  if (job.row.attempt > 1 && readRunSettings(job.session).isSingle) await forgetFiles(deps, job.session.id)
  if (await runsDirect(deps, job)) await runDirect(deps, job)
  else await runInSession(deps, job)
}

/** A run that is repeated begins as the first one did: nothing of that is to be found, nor taken for its own. */
async function forgetFiles(deps: ExecutionDeps, sessionId: string): Promise<void> {
  await deps.live.exclusive(sessionId, async () => {
    if (!deps.live.get(sessionId)) await deps.disk.remove(sessionDirs(deps.dataDir, sessionId))
  })
}

async function afterFailure(
  deps: ExecutionDeps,
  job: Job,
  error: unknown,
  noRoomAfter: number | undefined,
): Promise<void> {
  if (job.isOver) return
  if (job.cancelReason !== undefined) return endWith(deps, job, 'cancelled', cancelled(job.cancelReason))
  // The next start goes on with what is stored.
  if (deps.runs.isStopping || isAshError(error, 'server_stopping')) throw serverStopping()
  const fault = describe(error)
  if (isRefusal(error) && job.isRefusable && job.row.status === 'pending') return refuse(deps, job, error)
  if (isAshError(error) && SESSION_GONE.has(error.code)) return endWith(deps, job, 'cancelled', fault)
  if (noRoomAfter !== undefined)
    return performance.now() < noRoomAfter ? waitForRoom(deps, job) : endWith(deps, job, 'failed', fault)
  deps.log.warn({ err: error, executionId: job.id, attempt: job.row.attempt }, 'an attempt failed')
  if (!mayRetry(job, error)) return endWith(deps, job, 'crashed', fault)
  await backToPending(deps, job, job.row.attempt + 1)
  await pause(job, RETRY_DELAYS_MS[job.row.attempt - 2] ?? 0)
}

const isRefusal = (error: unknown) => isAshError(error, 'pool_full') || isAshError(error, 'too_many_kernels')

/** What a client can be told at once was never accepted: nothing of it ran. */
async function refuse(deps: ExecutionDeps, job: Job, error: unknown): Promise<void> {
  job.isEnding = true
  await deleteExecution(deps.db, job.row)
  // One that was made for this run goes with it.
  if (job.ownsSession) await deleteSession(deps.db, fenceOf(job.session))
  job.refuse(error)
}

/** Nobody can be told to come again later: room is waited for. */
async function waitForRoom(deps: ExecutionDeps, job: Job): Promise<void> {
  if (job.row.status !== 'pending') await backToPending(deps, job, job.row.attempt)
  await pause(job, ROOM_RETRY_MS)
}

/** Repeated while the database takes nothing: what was accepted is not forgotten. */
async function backToPending(deps: ExecutionDeps, job: Job, attempt: number): Promise<void> {
  const isStored = await storeEventually(deps, async () => {
    if (job.log.hasFailed) job.log = await deps.logs.get(fenceOf(job.session))
    // An earlier try may have stored the row and not the entry.
    if (job.row.status === 'pending' && job.row.attempt === attempt) return
    await moveJob(deps, job, { status: 'pending', attempt, started_at: null })
  })
  if (!isStored) throw new Error('the execution could not be stored as pending')
}

/** Ends early where the execution does. */
async function pause(job: Job, delayMs: number): Promise<void> {
  const late = new AbortController()
  const ended = job.ended.catch(() => {})
  await Promise.race([sleep(delayMs, undefined, { ref: false, signal: late.signal }), ended])
  late.abort()
}

/** There is nothing left to run it in, and somebody wanted that. */
const SESSION_GONE: ReadonlySet<string> = new Set([
  'session_ended',
  'session_gone',
  'session_paused',
  'session_not_found',
])

/** Only what may be different the next time, and through no fault of the code. */
function mayRetry({ row }: Job, error: unknown): boolean {
  if (row.retries === 0 || row.attempt >= MAX_ATTEMPTS) return false
  return !isAshError(error) || error.isRetryable
}

function describe(error: unknown): RunError {
  if (error instanceof AshError) return { name: error.code, message: error.message }
  return { name: 'internal_error', message: 'The run failed inside Ash; its log has the reason' }
}
