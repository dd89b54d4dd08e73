import { AshError, type FileChange, isErrorCode, parseSSE } from '@ash-ai/shared'
import { AshReplyError } from './errors.ts'
import type { Http, RequestOptions } from './http.ts'
import { sessionPath } from './paths.ts'

/** `ready` comes first: what changes after it is told. `truncated`: there is more than is looked at. */
export type FileEvent =
  | FileChange
  | { type: 'ready'; entries: number; truncated: boolean; limit: number }
  | { type: 'truncated'; limit: number }

const TYPES: ReadonlySet<string | undefined> = new Set([
  'ready',
  'truncated',
  'created',
  'changed',
  'deleted',
])

export async function* watchFiles(
  http: Http,
  sessionId: string,
  options: RequestOptions & { path?: string | undefined },
): AsyncGenerator<FileEvent> {
  const { path, ...rest } = options
  const request = { ...rest, method: 'GET' as const, path: sessionPath(sessionId, 'files') }
  const stream = await http.stream({ ...request, query: { path, watch: 'true' } })
  for await (const { event, data } of parseSSE(stream)) {
    if (event === 'error') throw toError(data)
    if (TYPES.has(event)) yield { ...JSON.parse(data), type: event }
  }
}

/** Half way only a code and a text are told. */
function toError(data: string): Error {
  const { code, error }: { code?: unknown; error?: unknown } = JSON.parse(data)
  return isErrorCode(code) ? new AshError(code, String(error)) : new AshReplyError(String(error))
}
