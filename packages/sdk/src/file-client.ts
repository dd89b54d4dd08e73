import type { FileEntry, FileInput, FileLink, FileLinkCreate, FileStat, FileTransfer } from '@ash-ai/shared'
import { type FileEvent, watchFiles } from './file-watch.ts'
import type { Http, HttpRequest, RequestOptions } from './http.ts'
import { LONG_TIMEOUT_MS } from './long-timeout.ts'
import { type FormFile, toMultipart } from './multipart-body.ts'
import { filePath, sessionPath } from './paths.ts'

export interface FileListOptions extends RequestOptions {
  /** Folder to list; default the whole workspace. */
  path?: string | undefined
  /** Also what is in folders below; default yes. */
  recursive?: boolean | undefined
  limit?: number | undefined
  /** `nextCursor` of the page before. */
  cursor?: string | undefined
  /** As they were then; default as they are. */
  checkpointId?: string | undefined
}

export interface FileReadOptions extends RequestOptions {
  /** As it was then; default as it is. */
  checkpointId?: string | undefined
}

export interface FileStreamOptions extends FileReadOptions {
  /** From this byte, the first being 0. */
  start?: number | undefined
  /** Up to this byte, included. */
  end?: number | undefined
}

export interface FileWriteOptions extends RequestOptions {
  /** Permission bits such as `0755`; default as the file that is replaced, else `0644`. */
  mode?: string | undefined
  /** Only over the file with this etag. */
  ifMatch?: string | undefined
  /** Only where no file is. */
  onlyNew?: boolean | undefined
}

export interface FileSearchOptions extends FileReadOptions {
  /** Folder to search; default the whole workspace. */
  path?: string | undefined
  limit?: number | undefined
}

export interface FileListing {
  files: FileEntry[]
  /** There is more: `nextCursor` leads to it, unless the workspace is too large to be listed whole. */
  truncated: boolean
  nextCursor?: string
  /** Where they were read: the folder of the session, or a checkpoint where there is none on this host. */
  source: 'live' | 'checkpoint'
}

export interface WrittenFile {
  path: string
  size: number
}

export type FileContent = Uint8Array<ArrayBuffer> | string | ReadableStream<Uint8Array>

/** Files in a session's workspace. Paths are relative to it. */
export class FileClient {
  readonly #http: Http

  constructor(http: Http) {
    this.#http = http
  }

  /** One page, in the order of the paths. */
  async list(sessionId: string, options: FileListOptions = {}): Promise<FileListing> {
    const { path, limit, cursor, recursive, checkpointId, ...rest } = options
    const request = { ...rest, method: 'GET' as const, path: sessionPath(sessionId, 'files') }
    const query = { path, limit, cursor, checkpointId, recursive: toText(recursive) }
    return await this.#http.json({ ...request, query }, 'files')
  }

  /** All of them, over as many pages as that takes. */
  async *listAll(sessionId: string, options: FileListOptions = {}): AsyncGenerator<FileEntry> {
    let cursor = options.cursor
    do {
      const page = await this.list(sessionId, { ...options, cursor })
      yield* page.files
      cursor = page.nextCursor
    } while (cursor !== undefined)
  }

  /** What is at a path; a link itself and not what it leads to. */
  async stat(sessionId: string, path: string, options: FileReadOptions = {}): Promise<FileStat> {
    const { checkpointId, ...rest } = options
    const request = { ...rest, method: 'GET' as const, path: filePath(sessionId, path) }
    return await this.#http.json<FileStat>({ ...request, query: { stat: '', checkpointId } }, 'type')
  }

  async read(sessionId: string, path: string, options: FileReadOptions = {}): Promise<Uint8Array> {
    const { checkpointId, ...rest } = options
    const request = { ...rest, method: 'GET' as const, path: filePath(sessionId, path) }
    return await this.#http.bytes({ ...request, query: { checkpointId } })
  }

  /** A file of any length as it arrives, or a part of it. Leaving the loop closes the connection. */
  async readStream(
    sessionId: string,
    path: string,
    options: FileStreamOptions = {},
  ): Promise<AsyncIterable<Uint8Array>> {
    const { checkpointId, start, end, ...rest } = options
    const isPart = start !== undefined || end !== undefined
    const headers = isPart ? { range: `bytes=${start ?? 0}-${end ?? ''}` } : {}
    const request = { ...rest, headers, method: 'GET' as const, path: filePath(sessionId, path) }
    return await this.#http.stream({ ...request, query: { checkpointId } }, 'application/octet-stream')
  }

  async readText(sessionId: string, path: string, options: FileReadOptions = {}): Promise<string> {
    const { checkpointId, ...rest } = options
    const request = { ...rest, method: 'GET' as const, path: filePath(sessionId, path) }
    const query = { format: 'json', checkpointId }
    return (await this.#http.json<{ content: string }>({ ...request, query }, 'content')).content
  }

  /** Writes a file: all of it, or nothing. A stream may be as long as the session's disk allows. */
  async write(
    sessionId: string,
    path: string,
    content: FileContent,
    options: FileWriteOptions = {},
  ): Promise<WrittenFile> {
    const { mode, ifMatch, onlyNew, ...rest } = options
    const request = { ...rest, method: 'PUT' as const, path: filePath(sessionId, path), query: { mode } }
    const headers = {
      ...(ifMatch !== undefined && { 'if-match': ifMatch }),
      ...(onlyNew && { 'if-none-match': '*' }),
    }
    return await this.#http.json({ ...request, headers, ...toBody(content) }, 'path')
  }

  /** Writes several files with one request, their content in base64. */
  async writeAll(sessionId: string, files: FileInput[], options?: RequestOptions): Promise<WrittenFile[]> {
    const request = { ...options, method: 'POST' as const, path: sessionPath(sessionId, 'files') }
    return (await this.#http.json<{ files: WrittenFile[] }>({ ...request, json: { files } }, 'files')).files
  }

  /** Writes files of any length into one folder: all of them, or none. */
  async upload(
    sessionId: string,
    files: FormFile[],
    options: RequestOptions & { path?: string | undefined } = {},
  ): Promise<WrittenFile[]> {
    const { path, ...rest } = options
    const { stream, contentType } = toMultipart(files)
    const request = { ...rest, method: 'POST' as const, path: sessionPath(sessionId, 'files', 'upload') }
    const sent = { ...request, query: { path }, stream, headers: { 'content-type': contentType } }
    return (await this.#http.json<{ files: WrittenFile[] }>(sent, 'files')).files
  }

  /** Makes a folder; with `parents` also those above it, and it may exist already. */
  async mkdir(
    sessionId: string,
    path: string,
    options: RequestOptions & { parents?: boolean | undefined } = {},
  ): Promise<FileStat> {
    const { parents, ...rest } = options
    return await this.#change(sessionId, 'mkdir', { path, parents }, rest)
  }

  /** Moves a file or a folder. */
  async move(sessionId: string, move: FileTransfer, options?: RequestOptions): Promise<FileStat> {
    return await this.#change(sessionId, 'move', move, options)
  }

  /** Copies a file, or a folder with all it holds. */
  async copy(sessionId: string, copy: FileTransfer, options?: RequestOptions): Promise<FileStat> {
    return await this.#change(sessionId, 'copy', copy, { timeoutMs: LONG_TIMEOUT_MS, ...options })
  }

  /** Permission bits such as `0755`. */
  async chmod(sessionId: string, path: string, mode: string, options?: RequestOptions): Promise<FileStat> {
    return await this.#change(sessionId, 'chmod', { path, mode }, options)
  }

  /** A folder with all it holds; with `recursive: false` only one that holds nothing. */
  async delete(
    sessionId: string,
    path: string,
    options: RequestOptions & { recursive?: boolean | undefined } = {},
  ): Promise<void> {
    const { recursive, ...rest } = options
    const request = { ...rest, method: 'DELETE' as const, path: filePath(sessionId, path) }
    await this.#http.done({ ...request, query: { recursive: toText(recursive) } })
  }

  /** Files by name: `*.py`, `src/**` and the like, or a part of a name. */
  async search(
    sessionId: string,
    query: string,
    options: FileSearchOptions = {},
  ): Promise<{ files: FileEntry[]; truncated: boolean }> {
    const { path, limit, checkpointId, ...rest } = options
    const request = { ...rest, method: 'GET' as const, path: sessionPath(sessionId, 'files', 'search') }
    return await this.#http.json({ ...request, query: { query, path, limit, checkpointId } }, 'files')
  }

  /** What changes from now on, until the loop is left or the signal fires. A connection that is lost throws. */
  watch(
    sessionId: string,
    options: RequestOptions & { path?: string | undefined } = {},
  ): AsyncGenerator<FileEvent> {
    return watchFiles(this.#http, sessionId, options)
  }

  /** A link that lets whoever has it read, or write, one file without a key. */
  async link(sessionId: string, link: FileLinkCreate, options?: RequestOptions): Promise<FileLink> {
    const request = { ...options, method: 'POST' as const, path: sessionPath(sessionId, 'files', 'links') }
    return await this.#http.json<FileLink>({ ...request, json: link }, 'url')
  }

  #change(sessionId: string, action: string, json: object, options?: RequestOptions): Promise<FileStat> {
    const path = sessionPath(sessionId, 'files', action)
    return this.#http.json<FileStat>({ ...options, method: 'POST', path, json }, 'type')
  }
}

const toText = (flag: boolean | undefined) => (flag === undefined ? undefined : String(flag))

function toBody(content: FileContent): Pick<HttpRequest, 'bytes' | 'stream'> {
  if (content instanceof ReadableStream) return { stream: content }
  return { bytes: typeof content === 'string' ? new TextEncoder().encode(content) : content }
}
