import type { Checkpoint, CheckpointDiff } from '@ash-ai/shared'
import type { PageOptions } from './agent-client.ts'
import type { Http, RequestOptions } from './http.ts'
import { LONG_TIMEOUT_MS } from './long-timeout.ts'
import { sessionPath } from './paths.ts'

export interface DiffOptions extends RequestOptions {
  /** The checkpoint before, and the one after. */
  from: string
  to: string
  /** Paths in all. */
  limit?: number | undefined
}

/** Checkpoints: files and conversation of a session, as they were. */
export class CheckpointClient {
  readonly #http: Http

  constructor(http: Http) {
    this.#http = http
  }

  /** Newest first. */
  async list(
    sessionId: string,
    options: PageOptions = {},
  ): Promise<{ checkpoints: Checkpoint[]; nextCursor?: string }> {
    const { limit, cursor, ...rest } = options
    const path = sessionPath(sessionId, 'checkpoints')
    return await this.#http.json({ ...rest, method: 'GET', path, query: { limit, cursor } }, 'checkpoints')
  }

  /** Saves the session as it is now. */
  async create(sessionId: string, options?: RequestOptions): Promise<Checkpoint> {
    const path = sessionPath(sessionId, 'checkpoints')
    const request = { timeoutMs: LONG_TIMEOUT_MS, ...options, method: 'POST' as const, path }
    return (await this.#http.json<{ checkpoint: Checkpoint }>(request, 'checkpoint')).checkpoint
  }

  /** Deletes one that the session no longer stands on. */
  async delete(sessionId: string, checkpointId: string, options?: RequestOptions): Promise<void> {
    const path = sessionPath(sessionId, 'checkpoints', checkpointId)
    await this.#http.done({ ...options, method: 'DELETE', path })
  }

  /** What changed between two checkpoints of a session, in its workspace and in its log. */
  async diff(sessionId: string, options: DiffOptions): Promise<CheckpointDiff> {
    const { from, to, limit, ...rest } = options
    const path = sessionPath(sessionId, 'checkpoints', 'diff')
    const request = { ...rest, method: 'GET' as const, path, query: { from, to, limit } }
    return (await this.#http.json<{ diff: CheckpointDiff }>(request, 'diff')).diff
  }
}
