import type { ServerResponse } from 'node:http'
import { STUCK_CLIENT_TIMEOUT_MS } from '@ash-ai/shared'
import type { FastifyReply } from 'fastify'

const HEARTBEAT_MS = 15_000
const HOLD_MS = 2
const PIECE_BYTES = 64 * 1024

/**
 * One server-sent stream to one client. Writing waits for a slow client and gives up on one that accepts
 * nothing for a while; `signal` says that the client is gone. The turn behind it does not notice.
 */
export class SSEWriter {
  readonly signal: AbortSignal
  readonly #raw: ServerResponse
  readonly #gone = new AbortController()
  readonly #heartbeat: NodeJS.Timeout
  #held = ''
  #letGo: NodeJS.Timeout | undefined

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
    // One that left before is not told of again.
    if (this.#raw.destroyed) this.#leave()
  }

  /** Sends the headers while there is nothing to send after them. */
  begin(): void {
    this.#raw.flushHeaders()
  }

  /** Sends the text with what follows it, or by itself if nothing does in a moment. */
  hold(text: string): void {
    this.#held += text
    this.#letGo ??= setTimeout(() => void this.write(''), HOLD_MS)
  }

  #withHeld(text: string): string {
    clearTimeout(this.#letGo)
    this.#letGo = undefined
    const held = this.#held
    this.#held = ''
    return held + text
  }

  /** In pieces: a client counts as stuck if it does not take a piece in time, however long all of them take. */
  async write(added: string): Promise<void> {
    const text = this.#withHeld(added)
    if (text.length <= PIECE_BYTES) return this.#writePiece(text)
    // As bytes: what is cut as text may be cut in the middle of a character.
    const bytes = Buffer.from(text)
    for (let start = 0; start < bytes.length && !this.signal.aborted; start += PIECE_BYTES) {
      await this.#writePiece(bytes.subarray(start, start + PIECE_BYTES))
    }
  }

  #writePiece(piece: string | Uint8Array): Promise<void> | undefined {
    return this.signal.aborted || this.#raw.write(piece) ? undefined : this.#drained()
  }

  async #drained(): Promise<void> {
    const stuck = setTimeout(() => this.#raw.destroy(), STUCK_CLIENT_TIMEOUT_MS)
    await new Promise<void>((resolve) => {
      const done = () => {
        this.#raw.off('drain', done)
        this.signal.removeEventListener('abort', done)
        resolve()
      }
      this.#raw.on('drain', done)
      this.signal.addEventListener('abort', done)
    })
    clearTimeout(stuck)
  }

  /** Sends the last of it. A client that does not take that in time is given up too. */
  async end(added = ''): Promise<void> {
    clearInterval(this.#heartbeat)
    const lastText = this.#withHeld(added)
    if (lastText.length > PIECE_BYTES) await this.write(lastText)
    this.#raw.end(lastText.length > PIECE_BYTES ? '' : lastText)
    if (this.#raw.writableFinished || this.signal.aborted) return
    const stuck = setTimeout(() => this.#raw.destroy(), STUCK_CLIENT_TIMEOUT_MS).unref()
    this.#raw.once('close', () => clearTimeout(stuck))
  }

  /** Breaks the connection off, so that the client does not take what it has for the whole. */
  destroy(): void {
    this.#raw.destroy()
  }

  #leave(): void {
    clearInterval(this.#heartbeat)
    clearTimeout(this.#letGo)
    // A reason of our own: the default one collects a stack trace for every client that ever leaves.
    this.#gone.abort('the client is gone')
  }
}
