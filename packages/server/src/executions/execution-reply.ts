import {
  type Artifact,
  type Execution,
  type ExecutionEventData,
  type ExecutionSummary,
  isFinished,
  type RunError,
} from '@ash-ai/shared'
import { type StoredArtifact, shownArtifacts } from './artifact-store.ts'
import type { ExecutionRow, ExecutionSummaryRow } from './execution-queries.ts'
import type { Output } from './output-queries.ts'

/**
 * An execution as clients see it. Result and rich results are JSON text already and may be large, so that the reply is
 * put together as text.
 */
export function executionJson(row: ExecutionRow, output: Output): string {
  const { stdout, stderr } = output
  const hasResult = row.result === null ? 0 : 1
  const head = JSON.stringify({ ...toSummary({ ...row, has_result: hasResult }), stdout, stderr })
  return `${head.slice(0, -1)},"result":${resultJson(row)},"results":${row.results ?? '[]'}}`
}

/** The result itself; null where there is none. */
export const resultJson = ({ result }: Pick<ExecutionRow, 'result'>) => result ?? 'null'

export function toSummary(row: ExecutionSummaryRow): ExecutionSummary {
  return {
    id: row.id,
    sessionId: row.session_id,
    status: row.status,
    language: row.language,
    kind: row.kind,
    ...(row.kernel !== null && { kernel: row.kernel }),
    ...(row.is_new_kernel !== null && { isNewKernel: row.is_new_kernel === 1 }),
    hasResult: row.has_result === 1,
    ...(row.error !== null && { error: JSON.parse(row.error) as RunError }),
    ...(row.exit_code !== null && { exitCode: row.exit_code }),
    ...(row.signal !== null && { signal: row.signal }),
    truncated: row.truncated === 1,
    artifacts: artifactsOf(row),
    artifactsComplete: row.artifacts_complete === 1,
    ...(row.metrics !== null && { metrics: JSON.parse(row.metrics) as Execution['metrics'] }),
    ...(row.path !== null && { path: row.path }),
    attempt: row.attempt,
    timeout: row.timeout_ms,
    createdAt: new Date(row.created_at).toISOString(),
    ...(row.started_at !== null && { startedAt: new Date(row.started_at).toISOString() }),
    ...(row.finished_at !== null && { finishedAt: new Date(row.finished_at).toISOString() }),
  }
}

/** Files of the run; whether each can still be had is for the row to say. */
export function artifactsOf({
  artifacts,
  artifacts_until,
}: Pick<ExecutionRow, 'artifacts' | 'artifacts_until'>): Artifact[] {
  if (artifacts === null) return []
  return shownArtifacts(JSON.parse(artifacts) as StoredArtifact[], artifacts_until !== null)
}

/** How the execution stands, for the log. */
export function executionEvent(
  row: Pick<ExecutionRow, 'id' | 'status' | 'attempt' | 'language' | 'error'>,
): string {
  const { name, message } = row.error === null ? {} : (JSON.parse(row.error) as Partial<RunError>)
  const data: ExecutionEventData = {
    executionId: row.id,
    status: row.status,
    attempt: row.attempt,
    language: row.language,
    ...(isFinished(row.status) && name !== undefined && { error: { name, message: message ?? '' } }),
  }
  return JSON.stringify(data)
}
