import {
  type Artifact,
  type Execution,
  type ExecutionStatus,
  type ExecutionSummary,
  isFinished,
  MAX_RUN_TIMEOUT_MS,
} from '@ash-ai/shared'
import type { PageOptions } from './agent-client.ts'
import { sleep } from './deadline.ts'
import { AshConnectionError } from './errors.ts'
import type { Http, RequestOptions } from './http.ts'
import { artifactPath, sessionPath } from './paths.ts'
import { backoffMs } from './retry.ts'

export interface ExecutionListOptions extends PageOptions {
  status?: ExecutionStatus | undefined
}

export interface WaitOptions extends RequestOptions {
  /** For how long in all; default an hour. */
  waitMs?: number | undefined
}

/** A file that an execution made or changed. */
export type SessionArtifact = Artifact & { executionId: string; createdAt: string }

/** What was run in a session, and what it left. */
export class ExecutionClient {
  readonly #http: Http

  constructor(http: Http) {
    this.#http = http
  }

  /** Newest first, without output and results. */
  async list(
    sessionId: string,
    options: ExecutionListOptions = {},
  ): Promise<{ executions: ExecutionSummary[]; nextCursor?: string }> {
    const { status, limit, cursor, ...rest } = options
    const path = sessionPath(sessionId, 'executions')
    const query = { status, limit, cursor }
    return await this.#http.json({ ...rest, method: 'GET', path, query }, 'executions')
  }

  async get(sessionId: string, executionId: string, options?: RequestOptions): Promise<Execution> {
    return await this.#execution('GET', sessionId, executionId, options)
  }

  /** What the code returned, alone; null where that is nothing. Fails until the execution has ended. */
  async result(sessionId: string, executionId: string, options?: RequestOptions): Promise<unknown> {
    const path = sessionPath(sessionId, 'executions', executionId, 'result')
    return await this.#http.value({ ...options, method: 'GET', path })
  }

  /** Returns when it has ended. A kernel keeps its variables. */
  async cancel(sessionId: string, executionId: string, options?: RequestOptions): Promise<Execution> {
    return await this.#execution('DELETE', sessionId, executionId, options)
  }

  /** Asks until the execution has ended, more and more seldom. */
  async wait(sessionId: string, executionId: string, options: WaitOptions = {}): Promise<Execution> {
    const { waitMs = MAX_RUN_TIMEOUT_MS, ...rest } = options
    const endMs = Date.now() + waitMs
    for (let tries = 0; ; tries++) {
      const execution = await this.get(sessionId, executionId, rest)
      if (isFinished(execution.status)) return execution
      const leftMs = endMs - Date.now()
      if (leftMs <= 0)
        throw new AshConnectionError('timeout', `Execution ${executionId} has not ended within ${waitMs} ms`)
      await sleep(Math.min(backoffMs(tries), leftMs), rest.signal)
    }
  }

  /** Files that executions of this session made or changed, newest first; `limit` counts executions. */
  async artifacts(
    sessionId: string,
    options: PageOptions = {},
  ): Promise<{ artifacts: SessionArtifact[]; nextCursor?: string }> {
    const { limit, cursor, ...rest } = options
    const path = sessionPath(sessionId, 'artifacts')
    return await this.#http.json({ ...rest, method: 'GET', path, query: { limit, cursor } }, 'artifacts')
  }

  /** An artifact as it arrives, also after the session has ended. Leaving the loop closes the connection. */
  async download(
    sessionId: string,
    executionId: string,
    path: string,
    options?: RequestOptions,
  ): Promise<AsyncIterable<Uint8Array>> {
    const request = { ...options, method: 'GET' as const, path: artifactPath(sessionId, executionId, path) }
    return await this.#http.stream(request, '*/*')
  }

  async #execution(
    method: 'GET' | 'DELETE',
    sessionId: string,
    executionId: string,
    options?: RequestOptions,
  ): Promise<Execution> {
    const path = sessionPath(sessionId, 'executions', executionId)
    return (await this.#http.json<{ execution: Execution }>({ ...options, method, path }, 'execution'))
      .execution
  }
}
