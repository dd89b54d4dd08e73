import { MAX_ATTEMPTS, type RunError } from '@ash-ai/shared'
import { endSession } from '../sessions/session-lifecycle.ts'
import { fenceOf, getSession } from '../sessions/session-queries.ts'
import { addJob, openInput } from './accept-execution.ts'
import { cancelled } from './end-execution.ts'
import {
  type ExecutionRow,
  getExecution,
  listLastFinished,
  listOpenExecutions,
  listSpentSessions,
  moveExecution,
} from './execution-queries.ts'
import { executionEvent } from './execution-reply.ts'
import { type ExecutionDeps, serverStopping } from './executions.ts'
import type { Job } from './job.ts'
import { findLastStatus } from './output-queries.ts'
import { runJob } from './run-job.ts'

/** Begun at the same time after a start. */
const MAX_TAKEN_UP_AT_ONCE = 4

/** Rows and entries are stored side by side: one is behind the other by less than this. */
const UNTOLD_MS = 60_000
const MAX_UNTOLD = 1_000

const LOST = { name: 'interrupted', message: 'The server stopped, and what was to be run could not be read' }
const INTERRUPTED = { name: 'interrupted', message: 'The server stopped during the run' }

/**
 * Takes up what was not at its end when the server stopped: what waited runs, and what ran runs again where it may be
 * repeated. Resolves when it is settled what becomes of each; they run by themselves. Before anybody can ask for a run:
 * what is open now is what the last server left.
 */
export async function recoverExecutions(deps: ExecutionDeps): Promise<number> {
  await tellEnds(deps)
  const open = await listOpenExecutions(deps.db, deps.hostId)
  const taken: (() => Promise<void>)[] = []
  for (const row of open) {
    const next = await takeUp(deps, row).catch((error: unknown) => giveUp(deps, row, error))
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
  const row = await settle(deps, found, session.status === 'ended')
  if (row !== found) await log.append('execution', row.id, executionEvent(row))
  if (row.status !== 'pending') return undefined
  const input = openInput(deps, row)
  const job = addJob(deps, { row, session, input, log }, deps.runs.enter(row, true), false)
  return async () => {
    void runJob(deps, job)
    await job.begun
  }
}

/** What it is now: what ran when the server stopped is pending again, or over, and so is all of a session that ended. */
async function settle(deps: ExecutionDeps, row: ExecutionRow, hasEnded: boolean): Promise<ExecutionRow> {
  if (hasEnded) return endStored(deps, row, 'cancelled', cancelled('The session ended'))
  if (row.status !== 'running') return row
  if (row.retries === 0 || row.attempt >= MAX_ATTEMPTS) return endStored(deps, row, 'crashed', INTERRUPTED)
  const change = { status: 'pending' as const, attempt: row.attempt + 1, started_at: null }
  await moveExecution(deps.db, row, change)
  return { ...row, ...change }
}

async function endStored(
  { db, runMetrics }: ExecutionDeps,
  row: ExecutionRow,
  status: 'cancelled' | 'crashed',
  error: RunError,
): Promise<ExecutionRow> {
  const change = { status, error: JSON.stringify(error), input_sealed: null, finished_at: Date.now() }
  await moveExecution(db, row, change)
  runMetrics.executions.inc({ status, language: row.language, path: row.path ?? 'none' })
  return { ...row, ...change }
}

/** It would be open for ever: its next try would fail as this one did. */
async function giveUp(deps: ExecutionDeps, { tenant_id, session_id, id }: ExecutionRow, error: unknown) {
  deps.log.error({ err: error, executionId: id }, 'an execution could not be taken up')
  try {
    const row = await getExecution(deps.db, tenant_id, session_id, id)
    if (row.finished_at === null) await endStored(deps, row, 'crashed', LOST)
  } catch (failure) {
    deps.log.error({ err: failure, executionId: id }, 'nor could it be ended')
  }
  return undefined
}

/** The last thing that the server stored of some executions may be that they ended, without telling so in the log. */
async function tellEnds(deps: ExecutionDeps): Promise<void> {
  for (const row of await listLastFinished(deps.db, deps.hostId, UNTOLD_MS, MAX_UNTOLD)) {
    if ((await findLastStatus(deps.db, row)) === row.status) continue
    const session = await getSession(deps.db, row.tenant_id, row.session_id)
    const log = await deps.logs.get(fenceOf(session))
    await log
      .append('execution', row.id, executionEvent(row))
      .catch((error: unknown) =>
        deps.log.error({ err: error, executionId: row.id }, 'the end of an execution could not be told'),
      )
  }
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
