import { sessionDirs } from '@ash-ai/sandbox'
import { AshError, isFinished, type RunError } from '@ash-ai/shared'
import { endSession } from '../sessions/session-lifecycle.ts'
import { fenceOf, getSession } from '../sessions/session-queries.ts'
import { storeEventually } from '../sessions/store-eventually.ts'
import { type ExecutionChange, type ExecutionRow, moveExecution } from './execution-queries.ts'
import { executionEvent } from './execution-reply.ts'
import type { ExecutionDeps } from './executions.ts'
import type { Job } from './job.ts'

/** Stores that an execution is something else now: its row, and an entry of the log. Throws where it is not any more. */
export async function moveJob(deps: ExecutionDeps, job: Job, change: ExecutionChange): Promise<void> {
  const before = job.row
  // At once: whoever looks at the job meanwhile must not take it for what it was.
  job.row = { ...before, ...change }
  const [moved, told] = await Promise.allSettled([
    job.write(() => moveExecution(deps.db, before, change)).then(assertMoved),
    job.log.append('execution', job.id, executionEvent(job.row)),
  ])
  if (moved.status === 'rejected') {
    job.row = before
    throw moved.reason
  }
  if (told.status === 'rejected') throw told.reason
}

function assertMoved(isMoved: boolean): void {
  if (!isMoved) throw new AshError('session_conflict', 'The execution belongs to another host now')
}

/** How an execution ended. */
export type Ending = ExecutionChange & { status: ExecutionRow['status'] }

/** Stores how an execution ended, once: whoever comes second changes nothing. */
export async function endJob(deps: ExecutionDeps, job: Job, ending: Ending): Promise<void> {
  if (job.isOver) return
  job.isEnding = true
  void job.output.flush()
  const before = job.row
  const change = { ...ending, input_sealed: null, finished_at: Date.now() }
  const isDropped = change.truncated === 1 || job.output.isTruncated
  job.row = { ...before, ...change, truncated: isDropped ? 1 : 0 }
  if (await storeEnd(deps, job, before)) {
    noteEnd(deps, job)
    job.end()
  } else {
    job.refuse(new AshError('internal_error', 'The end of the execution could not be stored'))
  }
  if (job.session.mode === 'ephemeral') clearAfter(deps, job)
}

function storeEnd(deps: ExecutionDeps, job: Job, before: ExecutionRow): Promise<boolean> {
  const { id: _, ...stored } = job.row
  let isMoved = false
  let isLogged = false
  let isRepeated = false
  const move = async () => {
    const isChanged = await job.write(() => moveExecution(deps.db, before, endingOf(stored)))
    // A commit that was reported as failed may still have been one, where the database is on another machine.
    if (!isRepeated) assertMoved(isChanged)
    isMoved = true
  }
  const tell = async () => {
    if (job.log.hasFailed) job.log = await deps.logs.get(fenceOf(job.session))
    await job.log.append('execution', job.id, executionEvent(job.row))
    isLogged = true
  }
  return storeEventually(deps, async () => {
    const written = await Promise.allSettled([isMoved || move(), isLogged || tell()])
    isRepeated = true
    for (const each of written) if (each.status === 'rejected') throw each.reason
  })
}

const endingOf = (row: Omit<ExecutionRow, 'id'>): ExecutionChange => ({
  status: row.status,
  input_sealed: row.input_sealed,
  path: row.path,
  is_new_kernel: row.is_new_kernel,
  result: row.result,
  results: row.results,
  error: row.error,
  exit_code: row.exit_code,
  signal: row.signal,
  truncated: row.truncated,
  artifacts: row.artifacts,
  artifacts_complete: row.artifacts_complete,
  artifacts_until: row.artifacts_until,
  artifacts_bytes: row.artifacts_bytes,
  metrics: row.metrics,
  finished_at: row.finished_at,
})

function noteEnd({ runMetrics, log }: ExecutionDeps, { row }: Job): void {
  const { status, language, path, created_at, finished_at } = row
  runMetrics.executions.inc({ status, language, path: path ?? 'none' })
  runMetrics.executionSeconds.observe(((finished_at ?? created_at) - created_at) / 1000)
  if (status === 'crashed')
    log.warn({ executionId: row.id, sessionId: row.session_id, attempt: row.attempt }, 'execution crashed')
}

/** A session for one run has had it. After the reply, which need not wait for it. */
function clearAfter(deps: ExecutionDeps, { row: { tenant_id, session_id } }: Job): void {
  const cleared = async () => {
    await new Promise((resolve) => setImmediate(resolve))
    const { status } = await getSession(deps.db, tenant_id, session_id)
    await endSession(deps, tenant_id, session_id)
    // Whoever ended it did not wait for a run that was slow to go.
    if (status === 'ended') await deps.disk.remove(sessionDirs(deps.dataDir, session_id))
  }
  deps.runs.track(
    cleared().catch((error: unknown) =>
      deps.log.error({ err: error, sessionId: session_id }, 'a session was not ended after its run'),
    ),
  )
}

/** Ends it without an outcome of its code. */
export const endWith = (
  deps: ExecutionDeps,
  job: Job,
  status: 'cancelled' | 'crashed' | 'failed',
  error: RunError,
): Promise<void> => endJob(deps, job, { status, error: JSON.stringify(error) })

export const cancelled = (reason: string): RunError => ({ name: 'Cancelled', message: reason })

/**
 * Ends an execution at once where it waits, and its run where it runs: code in a kernel is interrupted, and the kernel
 * keeps what it holds. Resolves when the end is durable.
 */
export async function cancelJob(deps: ExecutionDeps, job: Job, reason: string): Promise<ExecutionRow> {
  if (isFinished(job.row.status)) return job.ended
  job.cancelReason ??= reason
  if (job.row.status === 'pending') {
    job.place.leave()
    await endWith(deps, job, 'cancelled', cancelled(reason))
  } else {
    // What fails here is heard of by the run itself.
    await job.stopRun?.().catch(() => {})
  }
  return job.ended
}

/** Of one session: what runs and what waits. */
export async function cancelAll(deps: ExecutionDeps, sessionId: string, reason: string): Promise<void> {
  const jobs = deps.runs.of(sessionId)
  // Those that wait first: none of them is to begin because another ended.
  jobs.sort((a, b) => Number(a.row.status === 'running') - Number(b.row.status === 'running'))
  await Promise.allSettled(jobs.map((job) => cancelJob(deps, job, reason)))
}
