import { AshConnectionError, AshReplyError, toTurnError } from './errors.ts'
import type { SdkMessage, SessionEvent } from './events.ts'
import { textOf } from './sdk-message.ts'

export interface TurnResult {
  turnId: string
  /** Why the agent stopped, `end_turn` normally. */
  stopReason: string
  usage: unknown
  /** The agent's final answer. */
  text: string
  /** The SDK's own `result` message: cost, duration, structured output. */
  message: SdkMessage | undefined
}

type EventOf<T extends SessionEvent['type']> = Extract<SessionEvent, { type: T }>

/**
 * One message and everything the agent does about it, as an async iterable that can be consumed once. It ends
 * after `done`, or after the `error` that ended the turn. Leaving the loop early closes the connection; the
 * turn goes on at the server and its log.
 */
export class Turn implements AsyncIterable<SessionEvent> {
  readonly #events: AsyncGenerator<SessionEvent>
  #turnId: string | undefined
  #text = ''
  #message: SdkMessage | undefined
  #end: EventOf<'done'> | EventOf<'error'> | undefined

  /** `log` is the session's log from this turn's first event on. */
  constructor(log: AsyncGenerator<SessionEvent>) {
    this.#events = this.#untilEnd(log)
  }

  /** Known once the server has accepted the message. */
  get id(): string | undefined {
    return this.#turnId
  }

  [Symbol.asyncIterator](): AsyncIterator<SessionEvent> {
    return this.#events
  }

  /** Reads what has not been read and returns the outcome; throws AshError if the turn failed. */
  async result(): Promise<TurnResult> {
    for await (const _ of this.#events);
    const end = this.#end
    if (end === undefined) throw new AshConnectionError('lost', 'The turn was left before it ended')
    if (end.type === 'error') throw toTurnError(end)
    const { turnId, stopReason, usage } = end
    return { turnId, stopReason, usage, text: this.#answer(), message: this.#message }
  }

  /** The agent's final answer; throws AshError if the turn failed. */
  async text(): Promise<string> {
    return (await this.result()).text
  }

  async *#untilEnd(log: AsyncGenerator<SessionEvent>): AsyncGenerator<SessionEvent> {
    for await (const event of log) {
      this.#note(event)
      yield event
      if (this.#end !== undefined) return
    }
  }

  #note(event: SessionEvent): void {
    if (event.type === 'message') this.#noteMessage(event.message)
    if (event.type === 'turn') this.#noteTurn(event.turnId)
    const isEnd = event.type === 'done' || event.type === 'error'
    if (isEnd && event.turnId !== undefined && event.turnId === (this.#turnId ?? event.turnId)) {
      this.#end = event
    }
  }

  #noteTurn(turnId: string): void {
    // After a reconnection the log goes on past this turn; the next one must not be taken for it.
    if (this.#turnId !== undefined && this.#turnId !== turnId) {
      throw new AshReplyError(`Turn ${this.#turnId} has no end in the log; turn ${turnId} follows`)
    }
    this.#turnId = turnId
  }

  #noteMessage(message: SdkMessage): void {
    if (message.type === 'result') this.#message = message
    const text = textOf(message)
    if (text !== '') this.#text = text
  }

  #answer(): string {
    const result = this.#message?.result
    return typeof result === 'string' ? result : this.#text
  }
}
