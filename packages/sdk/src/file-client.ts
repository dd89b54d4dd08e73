import type { FileEntry, FileInput } from '@ash-ai/shared'
import type { Http, RequestOptions } from './http.ts'
import { filePath, sessionPath } from './paths.ts'

export interface FileListOptions extends RequestOptions {
  /** Folder to list; default the whole workspace. */
  path?: string | undefined
  limit?: number | undefined
  /** As they were then; default as they are. */
  checkpointId?: string | undefined
}

export interface FileReadOptions extends RequestOptions {
  /** As it was then; default as it is. */
  checkpointId?: string | undefined
}

export interface FileListing {
  files: FileEntry[]
  truncated: boolean
  /** Where they were read: the folder of the session, or a checkpoint where there is none on this host. */
  source: 'live' | 'checkpoint'
}

export interface WrittenFile {
  path: string
  size: number
}

/** Files in a session's workspace. Paths are relative to it. */
export class FileClient {
  readonly #http: Http

  constructor(http: Http) {
    this.#http = http
  }

  async list(sessionId: string, options: FileListOptions = {}): Promise<FileListing> {
    const { path, limit, checkpointId, ...rest } = options
    const request = { ...rest, method: 'GET' as const, path: sessionPath(sessionId, 'files') }
    return await this.#http.json({ ...request, query: { path, limit, checkpointId } }, 'files')
  }

  async read(sessionId: string, path: string, options: FileReadOptions = {}): Promise<Uint8Array> {
    const { checkpointId, ...rest } = options
    const request = { ...rest, method: 'GET' as const, path: filePath(sessionId, path) }
    return await this.#http.bytes({ ...request, query: { checkpointId } })
  }

  async readText(sessionId: string, path: string, options: FileReadOptions = {}): Promise<string> {
    const { checkpointId, ...rest } = options
    const request = { ...rest, method: 'GET' as const, path: filePath(sessionId, path) }
    const query = { format: 'json', checkpointId }
    return (await this.#http.json<{ content: string }>({ ...request, query }, 'content')).content
  }

  async write(
    sessionId: string,
    path: string,
    content: Uint8Array<ArrayBuffer> | string,
    options?: RequestOptions,
  ): Promise<WrittenFile> {
    const bytes = typeof content === 'string' ? new TextEncoder().encode(content) : content
    return await this.#http.json(
      { ...options, method: 'PUT', path: filePath(sessionId, path), bytes },
      'path',
    )
  }

  /** Writes several files with one request, their content in base64. */
  async writeAll(sessionId: string, files: FileInput[], options?: RequestOptions): Promise<WrittenFile[]> {
    const request = { ...options, method: 'POST' as const, path: sessionPath(sessionId, 'files') }
    return (await this.#http.json<{ files: WrittenFile[] }>({ ...request, json: { files } }, 'files')).files
  }

  async delete(sessionId: string, path: string, options?: RequestOptions): Promise<void> {
    await this.#http.done({ ...options, method: 'DELETE', path: filePath(sessionId, path) })
  }
}
