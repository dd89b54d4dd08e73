import { type LogLine, parseSSE, type SandboxInfo } from '@ash-ai/shared'
import type { PageOptions } from './agent-client.ts'
import type { Http, RequestOptions } from './http.ts'
import { sandboxPath, sessionPath } from './paths.ts'

export interface SandboxListOptions extends PageOptions {
  /** Only that of this session. */
  session?: string | undefined
}

export interface LogTailOptions extends RequestOptions {
  /** How many of the last lines; default 100. */
  tail?: number | undefined
}

/** Live sandboxes: what they are for, what they use, what they said. */
export class SandboxClient {
  readonly #http: Http

  constructor(http: Http) {
    this.#http = http
  }

  /** The newest first. */
  async list(options: SandboxListOptions = {}): Promise<{ sandboxes: SandboxInfo[]; nextCursor?: string }> {
    const { session, limit, cursor, ...rest } = options
    const query = { session, limit, cursor }
    return await this.#http.json({ ...rest, method: 'GET', path: '/api/sandboxes', query }, 'sandboxes')
  }

  async get(id: string, options?: RequestOptions): Promise<SandboxInfo> {
    const request = { ...options, method: 'GET' as const, path: sandboxPath(id) }
    return (await this.#http.json<{ sandbox: SandboxInfo }>(request, 'sandbox')).sandbox
  }

  /** Output, set-up, refused connections, limits and errors since it began, as lines. */
  async logs(id: string, options?: LogTailOptions): Promise<LogLine[]> {
    return await this.#lines(sandboxPath(id, 'logs'), options)
  }

  /** The same of a session, whichever sandboxes it had. */
  async sessionLogs(sessionId: string, options?: LogTailOptions): Promise<LogLine[]> {
    return await this.#lines(sessionPath(sessionId, 'logs'), options)
  }

  /** The last lines of a session, and more as they come, until the signal fires or the connection ends. */
  async *followSessionLogs(sessionId: string, options: LogTailOptions = {}): AsyncGenerator<LogLine> {
    const { tail, ...rest } = options
    const path = sessionPath(sessionId, 'logs')
    const stream = await this.#http.stream({ ...rest, method: 'GET', path, query: { tail, follow: 'true' } })
    for await (const { event, data } of parseSSE(stream)) if (event === 'line') yield JSON.parse(data)
  }

  async #lines(path: string, { tail, ...rest }: LogTailOptions = {}): Promise<LogLine[]> {
    const request = { ...rest, method: 'GET' as const, path, query: { tail } }
    return (await this.#http.json<{ lines: LogLine[] }>(request, 'lines')).lines
  }
}
