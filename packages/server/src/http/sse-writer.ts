import type { ServerResponse } from 'node:http'
import { STUCK_CLIENT_TIMEOUT_MS } from '@ash-ai/shared'
import type { FastifyReply } from 'fastify'

const HEARTBEAT_MS = 15_000
const PIECE_CHARS = 64 * 1024

/**
 * One server-sent stream to one client. Writing waits for a slow client and gives up on one that accepts
 * nothing for a while; `signal` says that the client is gone. The turn behind it does not notice.
 */
export class SSEWriter {
  readonly signal: AbortSignal
  readonly #raw: ServerResponse
  readonly #gone = new AbortController()
  readonly #heartbeat: NodeJS.Timeout

  constructor(reply: FastifyReply) {
    reply.hijack()
    this.#raw = reply.raw
    this.signal = this.#gone.signal
    this.#raw.on('close', () => this.#leave()).on('error', () => this.#leave())
    this.#raw.writeHead(200, {
      ...(reply.getHeaders() as Record<string, string>),
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      // Reverse proxies must not collect the stream.
      'x-accel-buffering': 'no',
    })
    this.#heartbeat = setInterval(() => {
      if (!this.#raw.writableNeedDrain) this.#raw.write(': \n\n')
    }, HEARTBEAT_MS).unref()
  }

  /** Sends the headers while there is nothing to send after them. */
  begin(): void {
    this.#raw.flushHeaders()
  }

  /** In pieces: a client counts as stuck if it does not take a piece in time, however long all of them take. */
  async write(text: string): Promise<void> {
    for (let start = 0; start < text.length && !this.signal.aborted; start += PIECE_CHARS) {
      const piece = text.length <= PIECE_CHARS ? text : text.slice(start, start + PIECE_CHARS)
      if (!this.#raw.write(piece)) await this.#drained()
    }
  }

  async #drained(): Promise<void> {
    const stuck = setTimeout(() => this.#raw.destroy(), STUCK_CLIENT_TIMEOUT_MS)
    await new Promise<void>((resolve) => {
      const done = () => {
        this.#raw.off('drain', done).off('close', done)
        resolve()
      }
      this.#raw.on('drain', done).on('close', done)
    })
    clearTimeout(stuck)
  }

  end(lastText = ''): void {
    clearInterval(this.#heartbeat)
    this.#raw.end(lastText)
  }

  /** Breaks the connection off, so that the client does not take what it has for the whole. */
  destroy(): void {
    this.#raw.destroy()
  }

  #leave(): void {
    clearInterval(this.#heartbeat)
    // A reason of our own: the default one collects a stack trace for every client that ever leaves.
    this.#gone.abort('the client is gone')
  }
}
