import { asOutOfMemory, type FileScan, type Interpreter, scanFiles, sessionDirs } from '@ash-ai/sandbox'
import { isAshError, type RunError, type RunOutcome, type RunRequest } from '@ash-ai/shared'
import { storedLimits } from '../sessions/effective-limits.ts'
import { fenceOf } from '../sessions/session-queries.ts'
import { keepArtifacts } from './artifact-store.ts'
import { isJson } from './check-result.ts'
import { cancelled, type Ending, endJob, moveJob } from './end-execution.ts'
import type { ExecutionRow } from './execution-queries.ts'
import type { ExecutionDeps } from './executions.ts'
import type { Job } from './job.ts'
import { handlerContext } from './run-plan.ts'

/** Where a run takes place. */
export interface Ground {
  path: NonNullable<ExecutionRow['path']>
  /** The interpreter for the run; called again where the first had ended unnoticed. */
  take(): Promise<Taken>
  /** Whether what was killed in it was killed for memory. */
  isOutOfMemory(): Promise<boolean>
}

export interface Taken {
  interpreter: Interpreter
  /** It has no variables of earlier runs; undefined where it never could. */
  isNewKernel?: boolean
  /** Variables that it does not have yet. */
  env?: Record<string, string>
  /** Called when the run is over and before its files are looked at. */
  release(outcome: RunOutcome | undefined): Promise<void>
}

/** Runs one attempt to its outcome and stores that. Rejects where something else than the code failed. */
export async function runAttempt(deps: ExecutionDeps, job: Job, ground: Ground): Promise<void> {
  if (job.log.hasFailed) job.log = await deps.logs.get(fenceOf(job.session))
  if (job.isOver) return
  job.output = job.newOutput()
  const starting = takeWithFiles(deps, job, ground)
  const running =
    job.row.status === 'pending' &&
    moveJob(deps, job, { status: 'running', started_at: Date.now(), path: ground.path })
  job.begin()
  const [started, stored] = await Promise.allSettled([starting, running])
  if (started.status === 'rejected') throw started.reason
  const { taken, before } = started.value
  if (stored.status === 'rejected') {
    await taken.release(undefined)
    throw stored.reason
  }
  const { outcome, isNewKernel } = await runWith(job, ground, taken, requestOf(job))
  const ending = await toEnding(await explain(outcome, ground, job))
  const artifacts = await keepArtifacts(deps, job.row, before)
  const where = {
    path: ground.path,
    ...(isNewKernel !== undefined && { is_new_kernel: isNewKernel ? 1 : 0 }),
  }
  await endJob(deps, job, { ...ending, ...artifacts, ...where, ...cancelledEnding(job, outcome) })
}

/** The files are looked at when the folders are there for sure, and before the code can change them. */
async function takeWithFiles(
  { dataDir }: ExecutionDeps,
  job: Job,
  ground: Ground,
): Promise<{ taken: Taken; before: FileScan }> {
  const { filesBefore } = job
  job.filesBefore = undefined // Of a second attempt it would say nothing.
  const taken = await ground.take()
  try {
    const before =
      (await filesBefore) ?? (await scanFiles(sessionDirs(dataDir, job.row.session_id).workspace))
    return { taken, before }
  } catch (error) {
    await taken.release(undefined)
    throw error
  }
}

interface Ran {
  outcome: RunOutcome
  isNewKernel: boolean | undefined
}

async function runWith(job: Job, ground: Ground, taken: Taken, request: RunRequest): Promise<Ran> {
  try {
    return await runOnce(job, taken, request)
  } catch (error) {
    // Nothing of the code was run.
    if (!isAshError(error, 'interpreter_gone')) throw error
    return runOnce(job, await ground.take(), request)
  }
}

async function runOnce(job: Job, taken: Taken, request: RunRequest): Promise<Ran> {
  const { interpreter, isNewKernel } = taken
  let outcome: RunOutcome | undefined
  const env = { ...taken.env, ...request.env }
  job.stopRun = () => (request.kind === 'code' ? interpreter.interrupt() : interpreter.stop())
  try {
    // Cancelled while the interpreter was on its way.
    const isWanted = job.cancelReason === undefined
    outcome = isWanted
      ? await interpreter.run({ ...request, env }, (piece) => job.output.take(piece))
      : NOT_RUN
    return { outcome, isNewKernel }
  } finally {
    job.stopRun = undefined
    await taken.release(outcome)
  }
}

const NOT_RUN: RunOutcome = {
  status: 'cancelled',
  results: [],
  truncated: false,
  metrics: { wallMs: 0, cpuMs: 0, peakMemoryBytes: 0, ioReadBytes: 0, ioWriteBytes: 0 },
  isOver: false,
}

function requestOf({ row, input, session }: Job): RunRequest {
  const { kind, code, timeout_ms: timeoutMs } = row
  const { event, context, env } = input
  const { memoryMb } = storedLimits(session.limits)
  return {
    kind,
    code,
    timeoutMs,
    ...(env && { env }),
    ...(kind === 'handler' && { event: event ?? '{}', context: handlerContext(row, context, memoryMb) }),
  }
}

async function toEnding(outcome: RunOutcome): Promise<Ending> {
  const { status, result, results, error, exitCode, signal, truncated, metrics } = outcome
  const ending: Ending = {
    status,
    // Between values only, where JSON takes them for blanks; in an event stream they would end the line.
    result: result?.replace(/[\r\n]/g, ' ') ?? null,
    results: results.length > 0 ? JSON.stringify(results) : null,
    error: error || status === 'timeout' ? JSON.stringify(error ?? TIMED_OUT) : null,
    exit_code: exitCode ?? null,
    signal: signal ?? null,
    truncated: truncated ? 1 : 0,
    metrics: JSON.stringify(metrics),
  }
  if (result === undefined || (await isJson(result))) return ending
  return { ...ending, status: 'failed', result: null, error: JSON.stringify(NOT_JSON) }
}

/** What was killed for memory says so. The run must end, also without that. */
async function explain(outcome: RunOutcome, ground: Ground, { session }: Job): Promise<RunOutcome> {
  if (outcome.signal !== 'SIGKILL' || !(await ground.isOutOfMemory().catch(() => false))) return outcome
  return asOutOfMemory(outcome, storedLimits(session.limits).memoryMb)
}

const TIMED_OUT: RunError = { name: 'Timeout', message: 'The code ran longer than it may, and was stopped' }

const NOT_JSON: RunError = {
  name: 'ResultChannelBroken',
  message: 'The result is not JSON: something inside wrote to the channel of the results',
}

/** Who cancelled a run is told of it, also where the code was quicker to fail. */
const cancelledEnding = ({ cancelReason }: Job, { status }: RunOutcome): Partial<Ending> =>
  cancelReason !== undefined && (status === 'cancelled' || status === 'failed')
    ? { status: 'cancelled', error: JSON.stringify(cancelled(cancelReason)) }
    : {}
