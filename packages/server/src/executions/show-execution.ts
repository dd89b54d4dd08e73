import { isFinished } from '@ash-ai/shared'
import type { ExecutionRow } from './execution-queries.ts'
import type { AcceptedExecution, ExecutionDeps } from './executions.ts'
import type { Job } from './job.ts'
import { type Output, readOutput } from './output-queries.ts'

export interface ShownExecution {
  row: ExecutionRow
  output: Output
}

/** An execution with what it has written so far: from memory where it is remembered, else from the log. */
export async function showExecution(deps: ExecutionDeps, row: ExecutionRow): Promise<ShownExecution> {
  const job = deps.runs.find(row.id)
  if (!job) return { row, output: await readOutput(deps.db, row) }
  return showJob(deps, job)
}

async function showJob(deps: ExecutionDeps, job: Job): Promise<ShownExecution> {
  const { row } = job
  const kept = isFinished(row.status) ? job.output.kept : undefined
  return { row, output: kept ?? (await readOutput(deps.db, row)) }
}

/** Waits for the end of an execution. */
export async function outcomeOf(
  deps: ExecutionDeps,
  { row, job }: AcceptedExecution,
): Promise<ShownExecution> {
  if (!job) return showExecution(deps, row)
  await job.ended
  return showJob(deps, job)
}
