import type { Artifact, ExecuteRequest, ExecutionSummary } from '@ash-ai/shared'
import type { ExecutionSummaryRow } from '../../executions/execution-queries.ts'
import { resultJson, toSummary } from '../../executions/execution-reply.ts'
import type { Output } from '../../executions/output-queries.ts'
import type { V1ExecutionRow } from './execution-queries.ts'
import type { V1Execute } from './execution-schemas.ts'
import { definesHandler } from './handler-code.ts'

export function toExecuteRequest({ code, language, timeout, event, env_vars }: V1Execute): ExecuteRequest {
  const isHandler = definesHandler(code, language ?? undefined)
  return {
    ...(isHandler ? { handler: code } : { code }),
    ...(language && { language }),
    ...(timeout && { timeout: timeout * 1000 }),
    ...(event && { event }),
    ...(env_vars && { env: env_vars }),
  }
}

const MB = 1024 * 1024

/** As in lists: without code, output and result. `sessionId` is what the dialect calls the session. */
export function toV1Summary(row: ExecutionSummaryRow, sessionId: string) {
  const { metrics, error, ...shown } = toSummary(row)
  const endedAt = shown.finishedAt ?? shown.createdAt
  return {
    id: shown.id,
    execution_id: shown.id,
    session_id: sessionId,
    status: shown.status,
    language: shown.language,
    timeout: Math.ceil(shown.timeout / 1000),
    exit_code: exitCodeOf(shown),
    error_message: error ? [error.name, error.message].filter(Boolean).join(': ') : null,
    execution_time: metrics ? metrics.wallMs / 1000 : null,
    artifacts: shown.artifacts.map((artifact) => toV1Artifact(artifact, endedAt)),
    retry_count: shown.attempt - 1,
    truncated: shown.truncated,
    created_at: shown.createdAt,
    started_at: shown.startedAt ?? null,
    completed_at: shown.finishedAt ?? null,
    metrics: metrics
      ? {
          duration_ms: metrics.wallMs,
          cpu_time_ms: metrics.cpuMs,
          peak_memory_mb: metrics.peakMemoryBytes / MB,
          io_read_bytes: metrics.ioReadBytes,
          io_write_bytes: metrics.ioWriteBytes,
        }
      : null,
  }
}

/** The whole execution, as JSON text: its result is text already and is passed on as it is. */
export function v1ExecutionJson(row: V1ExecutionRow, { stdout, stderr }: Output): string {
  const summary = toV1Summary(
    { ...row, has_result: row.result === null ? 0 : 1 },
    row.external_id ?? row.session_id,
  )
  const head = JSON.stringify({ ...summary, code: row.code, stdout, stderr: withTraceback(row, stderr) })
  return `${head.slice(0, -1)},"return_value":${resultJson(row)}}`
}

/** What a kernel says of a failure is in the error; in the dialect it is on stderr, as of any program. */
function withTraceback({ error }: Pick<V1ExecutionRow, 'error'>, stderr: string): string {
  const { traceback = '' } = error === null ? {} : (JSON.parse(error) as { traceback?: string })
  return traceback === '' || stderr.includes(traceback.trim()) ? stderr : `${stderr}${traceback}`
}

const NO_EXIT: Partial<Record<ExecutionSummary['status'], number>> = {
  completed: 0,
  failed: 1,
  timeout: 124,
  crashed: -1,
  cancelled: -1,
}

/** An interpreter that goes on has no exit code; neither has what was killed. */
const exitCodeOf = ({ exitCode, status }: Pick<ExecutionSummary, 'exitCode' | 'status'>) =>
  exitCode ?? NO_EXIT[status] ?? null

const toV1Artifact = ({ path, size, mimeType, sha256 }: Artifact, createdAt: string) => ({
  path,
  size,
  mime_type: mimeType,
  type: kindOf(path),
  created_at: createdAt,
  checksum: sha256 ?? null,
})

function kindOf(path: string): 'output' | 'log' | 'artifact' {
  if (path.startsWith('output/')) return 'output'
  return path.startsWith('logs/') || path.endsWith('.log') ? 'log' : 'artifact'
}
