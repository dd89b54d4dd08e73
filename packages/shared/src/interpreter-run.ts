import { MAX_RESULTS_BYTES, type RunEnd, type RunOutcome, type RunRequest } from './interpreter.ts'
import { NO_USAGE, type RunCause, type RunUsage } from './interpreter-outcome.ts'
import type { InterpreterReply } from './interpreter-replies.ts'
import { ProtocolError } from './line-splitter.ts'

const MAX_DISPLAYS = 1_000

/** A run under way: what came of it so far, and what ended it. */
export class ActiveRun {
  readonly request: RunRequest
  readonly startedMs = performance.now()
  /** Something has ended it; it may still have to be wound up. */
  readonly ended = Promise.withResolvers<void>()
  /** Nobody waits for the rest of its output. */
  readonly abandoned = Promise.withResolvers<void>()
  readonly finished = Promise.withResolvers<void>()
  readonly results: RunOutcome['results'] = []
  readonly timers: ReturnType<typeof setTimeout>[] = []
  cause: RunCause | undefined
  end: RunEnd | undefined
  result: string | undefined
  hasDropped = false
  isCancelled = false
  /** Of a taker; the run has no outcome then. */
  failure: { error: unknown } | undefined
  usage: Promise<RunUsage> = Promise.resolve(NO_USAGE)
  #resultsChars = 0

  constructor(request: RunRequest) {
    this.request = request
  }

  /** The first cause counts, unless nothing that came can be believed. */
  stop(cause: RunCause): void {
    if (this.cause === undefined || cause === 'broken') this.cause = cause
    this.ended.resolve()
  }

  /** Throws `ProtocolError` for what an interpreter would not have sent. */
  add(reply: Exclude<InterpreterReply, { kind: 'ready' }>): void {
    if (this.end !== undefined) throw new ProtocolError('a reply after the end')
    if (reply.kind === 'done') {
      this.end = reply.end
    } else if (reply.kind === 'result') {
      if (this.result !== undefined) throw new ProtocolError('a second result')
      this.result = reply.json
    } else if (reply.kind === 'dropped' || !this.#hasRoomFor(reply.chars)) {
      this.hasDropped = true
    } else {
      this.#resultsChars += reply.chars
      this.results.push({ isValue: reply.isValue, data: reply.data })
    }
  }

  #hasRoomFor(chars: number): boolean {
    return this.results.length < MAX_DISPLAYS && this.#resultsChars + chars <= MAX_RESULTS_BYTES
  }
}
