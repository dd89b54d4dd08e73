import type { Checkpoint, Session } from '@ash-ai/shared'
import type { Http, RequestOptions } from './http.ts'
import { LONG_TIMEOUT_MS } from './long-timeout.ts'
import { sessionPath } from './paths.ts'

export interface DownloadOptions extends RequestOptions {
  /** The workspace as it was then; default as it is. */
  checkpointId?: string | undefined
}

export interface UploadOptions extends RequestOptions {
  /** The archive becomes the whole workspace; otherwise it is laid over what is there. */
  replace?: boolean | undefined
}

/** The workspace of a session as one archive. */
export class WorkspaceClient {
  readonly #http: Http

  constructor(http: Http) {
    this.#http = http
  }

  /** A gzipped tar archive as it arrives. Leaving the loop closes the connection; a broken one throws. */
  async download(sessionId: string, options: DownloadOptions = {}): Promise<AsyncIterable<Uint8Array>> {
    const { checkpointId, ...rest } = options
    const path = sessionPath(sessionId, 'workspace')
    const request = { timeoutMs: LONG_TIMEOUT_MS, ...rest, method: 'GET' as const, path }
    return await this.#http.stream({ ...request, query: { checkpointId } }, 'application/gzip')
  }

  /** Unpacks a tar archive, gzipped or not, into the workspace: all of it, or nothing. Refused during a turn. */
  async upload(
    sessionId: string,
    archive: Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>,
    options: UploadOptions = {},
  ): Promise<{ session: Session; checkpoint: Checkpoint }> {
    const { replace, ...rest } = options
    const path = sessionPath(sessionId, 'workspace')
    const request = { timeoutMs: LONG_TIMEOUT_MS, ...rest, method: 'POST' as const, path }
    return await this.#http.json(
      {
        ...request,
        ...(archive instanceof ReadableStream ? { stream: archive } : { bytes: archive }),
        query: { replace: replace === undefined ? undefined : String(replace) },
        // The server looks at the content itself.
        headers: { 'content-type': 'application/gzip' },
      },
      'checkpoint',
    )
  }
}
