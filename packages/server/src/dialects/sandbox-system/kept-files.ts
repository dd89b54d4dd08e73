import { type Artifact, AshError } from '@ash-ai/shared'
import { openArtifact } from '../../executions/artifact-store.ts'
import { getExecution, listExecutions } from '../../executions/execution-queries.ts'
import { artifactsOf } from '../../executions/execution-reply.ts'
import type { ExecutionDeps } from '../../executions/executions.ts'

/** Of a session, the newest first. */
const MAX_EXECUTIONS = 1_000

interface KeptFile extends Artifact {
  executionId: string
}

/** What is kept of a session that has ended: the files that its executions left, each as the last one left it. */
export async function listKeptFiles(
  { db }: Pick<ExecutionDeps, 'db'>,
  tenantId: string,
  sessionId: string,
): Promise<KeptFile[]> {
  const page = { limit: MAX_EXECUTIONS, hasArtifacts: true }
  const { rows } = await listExecutions(db, tenantId, sessionId, page)
  const newest = new Map<string, KeptFile>()
  for (const row of rows)
    for (const artifact of artifactsOf(row))
      if (artifact.isKept && !newest.has(artifact.path))
        newest.set(artifact.path, { ...artifact, executionId: row.id })
  return [...newest.values()].sort((a, b) => (a.path < b.path ? -1 : 1))
}

/** Throws `file_not_found`. Longer ones than `maxBytes` are refused. */
export async function readKeptFile(
  deps: ExecutionDeps,
  { tenantId, sessionId, path, maxBytes }: KeptFileRequest,
): Promise<Buffer> {
  const kept = (await listKeptFiles(deps, tenantId, sessionId)).find((each) => each.path === path)
  if (!kept) throw new AshError('file_not_found', `Session ${sessionId} has ended and left no file "${path}"`)
  if (kept.size > maxBytes)
    throw new AshError('payload_too_large', `"${path}" is longer than ${maxBytes} bytes`)
  const row = await getExecution(deps.db, tenantId, sessionId, kept.executionId)
  const { handle } = await openArtifact(deps, row, path)
  try {
    return await handle.readFile()
  } finally {
    await handle.close()
  }
}

interface KeptFileRequest {
  tenantId: string
  sessionId: string
  path: string
  maxBytes: number
}
