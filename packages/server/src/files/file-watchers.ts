import { AshError, formatSSE, isAshError } from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply } from 'fastify'
import { SSEWriter } from '../http/sse-writer.ts'
import type { SessionFiles } from './session-files.ts'
import { MAX_WATCHED_ENTRIES, type Snapshot, scanFiles, watchScans } from './watch-files.ts'

const MAX_WATCHERS_OF_SESSION = 20
/** Each remembers what it has seen. */
const MAX_WATCHERS = 100

interface Watched {
  tenantId: string
  sessionId: string
  path: string | undefined
}

/** Streams of what changes in workspaces. They wake no session: one that is paused is watched as it lies there. */
export class FileWatchers {
  readonly #files: SessionFiles
  /** The sessions of those under way. */
  readonly #sessions: string[] = []
  readonly #closing = new AbortController()

  constructor(app: FastifyInstance, files: SessionFiles) {
    this.#files = files
    // Streams must not hold up a shutdown.
    app.addHook('preClose', async () => this.#closing.abort())
  }

  async stream(reply: FastifyReply, watched: Watched): Promise<FastifyReply> {
    const { sessionId } = watched
    const ofSession = this.#sessions.filter((other) => other === sessionId).length
    if (ofSession >= MAX_WATCHERS_OF_SESSION || this.#sessions.length >= MAX_WATCHERS)
      throw new AshError('too_many_readers', 'Too many clients watch files already; close some')
    this.#sessions.push(sessionId)
    try {
      // Before the reply begins: what is wrong with the request is told as an error.
      const first = await this.#scan(watched)
      await this.#copyChanges(new SSEWriter(reply), watched, first)
    } finally {
      this.#sessions.splice(this.#sessions.indexOf(sessionId), 1)
    }
    return reply
  }

  /** Looked up each time: the session may have ended, or got other files. */
  async #scan({ tenantId, sessionId, path }: Watched): Promise<Snapshot> {
    return scanFiles(await this.#files.open(tenantId, sessionId), path)
  }

  async #copyChanges(writer: SSEWriter, watched: Watched, first: Snapshot): Promise<void> {
    const signal = AbortSignal.any([writer.signal, this.#closing.signal])
    const ready = { entries: first.items.size, truncated: first.isTruncated, limit: MAX_WATCHED_ENTRIES }
    try {
      await writer.write(frame('ready', ready))
      for await (const { changes, isTruncated } of watchScans(first, () => this.#scan(watched), signal)) {
        const note = isTruncated ? frame('truncated', { limit: MAX_WATCHED_ENTRIES }) : ''
        await writer.write(note + changes.map((change) => frame(change.type, change)).join(''))
      }
      // Broken off: a server that stops is no end of what can change.
      writer.destroy()
    } catch (error) {
      await writer.end(frame('error', toData(error)))
      if (!isAshError(error)) throw error
    }
  }
}

const frame = (event: string, data: object) => formatSSE({ event, data: JSON.stringify(data) })

function toData(error: unknown): { code: string; error: string } {
  if (isAshError(error)) return { code: error.code, error: error.message }
  return { code: 'internal_error', error: 'The files could not be looked at' }
}
