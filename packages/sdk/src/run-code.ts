import { DEFAULT_RUN_TIMEOUT_MS, type ExecuteOnce, type ExecuteRequest, type Execution } from '@ash-ai/shared'
import { ExecutionStream } from './execution-stream.ts'
import type { Http, HttpRequest, RequestOptions } from './http.ts'
import { LONG_TIMEOUT_MS } from './long-timeout.ts'
import { sessionPath } from './paths.ts'

export interface ExecuteOptions extends RequestOptions {
  /** The code runs once, however often it is sent with this key; default a new one for each call. */
  idempotencyKey?: string | undefined
}

/** Code for a session. With `async` the reply comes at once, and `executions.wait` gives the outcome. */
export type SessionRun = Omit<ExecuteRequest, 'stream'>
/** Code for a session that exists for this one run. */
export type SingleRun = Omit<ExecuteOnce, 'stream'>

/** What a reply may take longer than the run itself: a sandbox has to start. */
const RUN_MARGIN_MS = 30_000

/** Runs code and waits for its outcome. Without `sessionId` a session is made for this run. */
export async function execute(
  http: Http,
  run: SessionRun | SingleRun,
  options: ExecuteOptions,
  sessionId?: string,
): Promise<Execution> {
  if (isLong(run)) return await executeStream(http, run, options, sessionId).result()
  const request = toRequest(run, options, sessionId)
  return (await http.json<{ execution: Execution }>(request, 'execution')).execution
}

/** The same, as it happens. */
export function executeStream(
  http: Http,
  run: Omit<SessionRun | SingleRun, 'async'>,
  options: ExecuteOptions,
  sessionId?: string,
): ExecutionStream {
  return new ExecutionStream(http, toRequest(run, options, sessionId), sessionId)
}

/** Node's `fetch` gives up on any reply after 300 s; a stream is kept open by heartbeats. */
const isLong = ({ async, timeout = 0 }: SessionRun | SingleRun) =>
  async !== true && timeout + RUN_MARGIN_MS > LONG_TIMEOUT_MS

function toRequest(
  run: SessionRun | SingleRun,
  { idempotencyKey = crypto.randomUUID(), ...options }: ExecuteOptions,
  sessionId: string | undefined,
): HttpRequest {
  // Of a short run, too: the first with new packages waits until they are installed.
  const timeoutMs = Math.max((run.timeout ?? DEFAULT_RUN_TIMEOUT_MS) + RUN_MARGIN_MS, LONG_TIMEOUT_MS)
  const path = sessionId === undefined ? '/api/execute' : sessionPath(sessionId, 'execute')
  return { timeoutMs, ...options, method: 'POST', path, json: run, idempotencyKey }
}
