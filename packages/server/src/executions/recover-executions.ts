import { MAX_ATTEMPTS } from '@ash-ai/shared'
import { endSession } from '../sessions/session-lifecycle.ts'
import { fenceOf, getSession } from '../sessions/session-queries.ts'
import { addJob, openInput } from './accept-execution.ts'
import {
  type ExecutionRow,
  listOpenExecutions,
  listSpentSessions,
  moveExecution,
} from './execution-queries.ts'
import { executionEvent } from './execution-reply.ts'
import { type ExecutionDeps, serverStopping } from './executions.ts'
import type { Job } from './job.ts'
import { runJob } from './run-job.ts'

/** Begun at the same time after a start. */
const MAX_TAKEN_UP_AT_ONCE = 4

const INTERRUPTED = { name: 'interrupted', message: 'The server stopped during the run' }

/**
 * Takes up what was not at its end when the server stopped: what waited runs, and what ran runs again where it may be
 * repeated. Resolves when it is settled what becomes of each; they run by themselves.
 */
export async function recoverExecutions(deps: ExecutionDeps): Promise<number> {
  const open = await listOpenExecutions(deps.db, deps.hostId)
  const taken: (() => Promise<void>)[] = []
  for (const row of open) {
    const next = await takeUp(deps, row).catch((error: unknown) => {
      deps.log.error({ err: error, executionId: row.id }, 'an execution could not be taken up')
      return undefined
    })
    if (next) taken.push(next)
  }
  const rest = taken.values()
  const work = async () => {
    for (const begin of rest) await begin()
  }
  for (let workers = 0; workers < MAX_TAKEN_UP_AT_ONCE; workers++) deps.runs.track(work())
  await endSpentSessions(deps)
  return open.length
}

/** What lets it run, where it is to run. The place is taken now: the order of creation is the order of runs. */
async function takeUp(deps: ExecutionDeps, found: ExecutionRow): Promise<(() => Promise<void>) | undefined> {
  const { tenant_id: tenantId, session_id: sessionId } = found
  const session = await getSession(deps.db, tenantId, sessionId)
  const log = await deps.logs.get(fenceOf(session))
  const row = found.status === 'running' ? await afterInterruption(deps, found) : found
  if (row !== found) await log.append('execution', row.id, executionEvent(row))
  if (row.status !== 'pending') return undefined
  const input = openInput(deps, row)
  const job = addJob(deps, { row, session, input, log }, deps.runs.enter(row, true), false)
  return async () => {
    void runJob(deps, job)
    await job.begun
  }
}

/** What ran when the server stopped: pending again, or over. */
async function afterInterruption(deps: ExecutionDeps, row: ExecutionRow): Promise<ExecutionRow> {
  const mayRepeat = row.retries === 1 && row.attempt < MAX_ATTEMPTS
  const change = mayRepeat
    ? { status: 'pending' as const, attempt: row.attempt + 1, started_at: null }
    : {
        status: 'crashed' as const,
        error: JSON.stringify(INTERRUPTED),
        input_sealed: null,
        finished_at: Date.now(),
      }
  await moveExecution(deps.db, row, change)
  if (!mayRepeat)
    deps.runMetrics.executions.inc({ status: 'crashed', language: row.language, path: row.path ?? 'none' })
  return { ...row, ...change }
}

/** Sessions for one run that have had it: the server stopped before they were ended. */
async function endSpentSessions(deps: ExecutionDeps): Promise<void> {
  for (const { tenantId, sessionId } of await listSpentSessions(deps.db, deps.hostId)) {
    await endSession(deps, tenantId, sessionId).catch((error: unknown) =>
      deps.log.error({ err: error, sessionId }, 'a session was not ended after its run'),
    )
  }
}

/**
 * Nothing begins any more; what runs has until the deadline. The rest is left as it is stored: the next start takes it
 * up. The sandboxes go with their sessions.
 */
export async function stopExecutions(deps: ExecutionDeps, deadlineMs: number): Promise<void> {
  deps.runs.stop()
  const [running, waiting] = split(deps.runs.all())
  for (const job of waiting) job.refuse(serverStopping())
  const ended = Promise.allSettled(running.map((job) => job.ended))
  await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, deadlineMs).unref())])
  for (const job of running) job.refuse(serverStopping())
  await deps.runs.settled()
}

function split(jobs: Job[]): [running: Job[], waiting: Job[]] {
  const isRunning = ({ row }: Job) => row.status === 'running'
  return [jobs.filter(isRunning), jobs.filter((job) => !isRunning(job))]
}
