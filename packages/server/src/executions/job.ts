import type { FileScan } from '@ash-ai/sandbox'
import { isFinished } from '@ash-ai/shared'
import type { SpareInterpreter } from '../sandboxes/spare.ts'
import type { EventLog } from '../sessions/event-log.ts'
import type { SessionRow } from '../sessions/session-queries.ts'
import type { ExecutionRow } from './execution-queries.ts'
import type { Place } from './lane.ts'
import { RunOutput } from './run-output.ts'
import type { RunInput } from './run-plan.ts'

export interface JobOptions {
  row: ExecutionRow
  session: SessionRow
  input: RunInput
  log: EventLog
  place: Place
  maxLogChars: number
  /** Somebody waits and can be told that there is no room; otherwise room is waited for. */
  isRefusable: boolean
  /** The session was made for this run, and is nothing without it. */
  ownsSession: boolean
  /** Characters of what is to be run. */
  size: number
  filesBefore?: Promise<FileScan | undefined> | undefined
  spare?: SpareInterpreter | undefined
}

/** An execution that this process brings to its end. */
export class Job {
  readonly session: SessionRow
  readonly input: RunInput
  readonly place: Place
  readonly isRefusable: boolean
  readonly ownsSession: boolean
  readonly size: number
  /** The log before its first entry: reading after this shows all of it. */
  readonly seqBefore: number
  /** Replaced when a write to it has failed. */
  log: EventLog
  /** As it is stored. */
  row: ExecutionRow
  output: RunOutput
  /** For the first attempt, which takes it away: the files of the workspace before it. */
  filesBefore: Promise<FileScan | undefined> | undefined
  /** An interpreter that waits for the first attempt; taken away by whoever uses it. */
  spare: SpareInterpreter | undefined
  /** Why it is to end, whatever its code says. */
  cancelReason: string | undefined
  /** Stops the run under way. */
  stopRun: (() => Promise<void>) | undefined
  /** Somebody is storing how it ended. */
  isEnding = false
  isRefused = false
  readonly #maxLogChars: number
  #writing: Promise<unknown> = Promise.resolve()
  readonly #begun = Promise.withResolvers<void>()
  readonly #ended = Promise.withResolvers<ExecutionRow>()

  constructor({ row, session, input, log, place, maxLogChars, ...options }: JobOptions) {
    this.row = row
    this.session = session
    this.input = input
    this.log = log
    this.place = place
    this.isRefusable = options.isRefusable
    this.ownsSession = options.ownsSession
    this.size = options.size
    this.filesBefore = options.filesBefore
    this.spare = options.spare
    this.seqBefore = log.lastSeq
    this.#maxLogChars = maxLogChars
    this.output = this.newOutput()
    // Not everybody who asks for a run waits for it.
    this.#ended.promise.catch(() => {})
  }

  get id(): string {
    return this.row.id
  }

  get isOver(): boolean {
    return this.isEnding || isFinished(this.row.status)
  }

  /** It runs, or will not any more. */
  get begun(): Promise<void> {
    return this.#begun.promise
  }

  /** Resolves when the outcome is durable. Rejects where it was refused, or is left to the next start. */
  get ended(): Promise<ExecutionRow> {
    return this.#ended.promise
  }

  /** Of the attempt that the row names. */
  newOutput(): RunOutput {
    const { log, row } = this
    return new RunOutput({
      log,
      executionId: row.id,
      attempt: row.attempt,
      maxLogChars: this.#maxLogChars,
    })
  }

  /** Changes of its row come one after another: a database with several connections keeps no order by itself. */
  write<Result>(change: () => Promise<Result>): Promise<Result> {
    const result = this.#writing.then(change)
    this.#writing = result.catch(() => {})
    return result
  }

  begin(): void {
    this.#begun.resolve()
  }

  end(): void {
    this.#begun.resolve()
    this.#ended.resolve(this.row)
  }

  refuse(error: unknown): void {
    this.isEnding = true
    this.isRefused = true
    this.#begun.resolve()
    this.#ended.reject(error)
  }
}
