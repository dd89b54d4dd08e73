import { type ClientRequest, type IncomingMessage, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseSSE, type SSEFrame } from '@ash-ai/shared'
import { entryOfFrame, isEndOfSession, isEntryId, type LogEntry } from './log-entry.ts'

const RECONNECT_MS = 50

export interface LogSource {
  url: string
  apiKey: string
  sessionId: string
}

/**
 * Follows a log over plain HTTP until its session ends, and comes back with the last id it has seen however often
 * the connection breaks. Keeps what it was sent, as it was sent: it hides no duplicate.
 */
export class RawLogReader {
  readonly entries: LogEntry[] = []
  /** How the order of ids was broken, if it was. */
  fault: string | undefined
  connections = 0
  readonly ended: Promise<void>
  readonly #source: LogSource
  readonly #waiting = new Set<() => void>()
  #lastId = '0'
  #request: ClientRequest | undefined
  #hasLeft = false

  constructor(source: LogSource) {
    this.#source = source
    this.ended = this.#follow()
  }

  /** Breaks the connection under the reader. */
  cut(): void {
    this.#request?.destroy()
  }

  leave(): void {
    this.#hasLeft = true
    this.cut()
  }

  /** Resolves with the first entry, read already or still to come, that fits. */
  async find(fits: (entry: LogEntry) => boolean): Promise<LogEntry> {
    for (let next = 0; ; ) {
      for (; next < this.entries.length; next++) {
        const entry = this.entries[next]
        if (entry && fits(entry)) return entry
      }
      await new Promise<void>((resolve) => this.#waiting.add(resolve))
    }
  }

  async #follow(): Promise<void> {
    while (!this.#hasLeft) {
      try {
        for await (const frame of parseSSE(await this.#connect())) {
          if (this.#take(frame)) return this.cut()
        }
      } catch {
        // Refused, broken or cut: the next connection continues.
      }
      await sleep(RECONNECT_MS)
    }
  }

  /** True with the last entry of the session. */
  #take(frame: SSEFrame): boolean {
    const before = this.#lastId
    this.#lastId = frame.id ?? before
    if (!isEntryId(frame.id)) {
      if (!follows(before, this.#lastId)) this.fault ??= `preview ${frame.id} after ${before}`
      return false
    }
    const entry = entryOfFrame(frame)
    this.entries.push(entry)
    for (const wake of this.#waiting) wake()
    this.#waiting.clear()
    return isEndOfSession(entry.type, JSON.parse(entry.data))
  }

  async #connect(): Promise<IncomingMessage> {
    const { url, apiKey, sessionId } = this.#source
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
    this.connections++
    this.#request = request(`${url}/api/sessions/${sessionId}/stream`, {
      headers: { authorization: `Bearer ${apiKey}`, 'last-event-id': this.#lastId },
    })
    this.#request.on('response', resolve).on('error', reject).end()
    const response = await promise
    if (response.statusCode === 200) return response
    response.resume()
    throw new Error(`the stream was answered with ${response.statusCode}`)
  }
}

/** A preview belongs behind the entry or preview that came before it. */
function follows(before: string, id: string): boolean {
  const [seqBefore, subBefore = 0] = before.split('.').map(Number)
  const [seq, sub = 0] = id.split('.').map(Number)
  return seq === seqBefore && sub > subBefore
}
