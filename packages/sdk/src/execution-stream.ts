import { type Execution, isFinished, type SSEFrame } from '@ash-ai/shared'
import type { ByteStream } from './byte-stream.ts'
import { AshConnectionError } from './errors.ts'
import { openLog, readFrames } from './event-stream.ts'
import { type ExecutionEvent, type OutputEvent, parseData, toEvent, withText } from './events.ts'
import type { Http, HttpRequest, RequestOptions } from './http.ts'
import { sessionPath } from './paths.ts'

/** How a run stands, what it writes, and at the end all of it. */
export type ExecutionStreamEvent = ExecutionEvent | OutputEvent | { type: 'result'; execution: Execution }

/**
 * Code that runs, as an async iterable of its events that can be consumed once and ends with `result`. Leaving the
 * loop early closes the connection; the code goes on at the server.
 */
export class ExecutionStream implements AsyncIterable<ExecutionStreamEvent> {
  readonly #http: Http
  readonly #options: RequestOptions
  readonly #events: AsyncGenerator<ExecutionStreamEvent>
  #sessionId: string | undefined
  #id: string | undefined
  #isOver = false
  /** Reads the log of the session, in which no `result` follows. */
  #isInLog = false
  #execution: Execution | undefined

  /** Sends `run`, which may be sent again: it has a key. Without `sessionId` the session is made for this run. */
  constructor(http: Http, run: HttpRequest, sessionId?: string) {
    this.#http = http
    this.#options = { signal: run.signal, timeoutMs: run.timeoutMs, retries: run.retries }
    this.#sessionId = sessionId
    const opening = this.#send(run)
    // Reported where the events are read; a run that nobody reads must not bring the process down.
    opening.catch(() => {})
    this.#events = this.#read(run, opening)
  }

  /** Known once the server has accepted the run, like `sessionId`. */
  get id(): string | undefined {
    return this.#id
  }

  get sessionId(): string | undefined {
    return this.#sessionId
  }

  [Symbol.asyncIterator](): AsyncIterator<ExecutionStreamEvent> {
    return this.#events
  }

  /** Reads what has not been read and returns the outcome, also that of code that failed. */
  async result(): Promise<Execution> {
    for await (const _ of this.#events);
    if (this.#execution === undefined)
      throw new AshConnectionError('lost', 'The execution was left before it ended')
    return this.#execution
  }

  async #send(run: HttpRequest): Promise<ByteStream> {
    const stream = await this.#http.stream(run)
    this.#id = stream.headers.get('x-ash-execution-id') ?? this.#id
    this.#sessionId = stream.headers.get('x-ash-session-id') ?? this.#sessionId
    return stream
  }

  async *#read(run: HttpRequest, opening: Promise<ByteStream>): AsyncGenerator<ExecutionStreamEvent> {
    const again = () => this.#send(run)
    const open = (after: number) => this.#goOn(after, again)
    for await (const frame of readFrames({ first: { opening, again }, open, signal: run.signal })) {
      const event = toExecutionEvent(frame)
      if (event === undefined || !this.#isOwn(event)) continue
      this.#note(event)
      yield event
      if (event.type === 'result') return
      if (this.#isOver && this.#isInLog) break
    }
    yield await this.#fetchResult()
  }

  /** After a break: the log of the session; where that is not known the run once more, which is the same one. */
  #goOn(after: number, again: () => Promise<ByteStream>): Promise<ByteStream> | undefined {
    if (this.#sessionId === undefined || this.#id === undefined) return again()
    if (this.#isOver) return undefined
    this.#isInLog = true
    return openLog(this.#http, this.#sessionId, after, this.#options)
  }

  /** The log of a session tells of its other executions, too. */
  #isOwn(event: ExecutionStreamEvent): boolean {
    return event.type === 'result' || this.#id === undefined || event.executionId === this.#id
  }

  #note(event: ExecutionStreamEvent): void {
    if (event.type === 'result') this.#execution = event.execution
    else this.#id ??= event.executionId
    if (event.type === 'execution' && isFinished(event.status)) this.#isOver = true
  }

  async #fetchResult(): Promise<ExecutionStreamEvent> {
    if (this.#sessionId === undefined || this.#id === undefined)
      throw new AshConnectionError('lost', 'The server closed the event stream')
    const event = await fetchResult(this.#http, this.#sessionId, this.#id, this.#options)
    this.#note(event)
    return event
  }
}

async function fetchResult(
  http: Http,
  sessionId: string,
  executionId: string,
  options: RequestOptions,
): Promise<ExecutionStreamEvent> {
  const path = sessionPath(sessionId, 'executions', executionId)
  const request = { ...options, method: 'GET' as const, path }
  const { execution } = await http.json<{ execution: Execution }>(request, 'execution')
  return { type: 'result', execution }
}

function toExecutionEvent(frame: SSEFrame): ExecutionStreamEvent | undefined {
  if (frame.event === 'result') {
    const execution = withText<Execution>(parseData(frame), 'result', 'id', 'sessionId', 'status')
    return { type: 'result', execution }
  }
  if (frame.event !== 'execution' && frame.event !== 'output') return undefined
  const event = toEvent(frame)
  return event.type === 'execution' || event.type === 'output' ? event : undefined
}
