import type { OutputPiece } from '@ash-ai/shared'
import type { EventLog } from '../sessions/event-log.ts'
import type { Output, OutputEntry } from './output-queries.ts'

/** Of one entry. */
const ENTRY_MAX_CHARS = 64 * 1024
/** Code that writes line by line costs one commit for what it writes in this time. */
const COLLECT_MS = 10
/** Output up to this length is kept until the reply; more is read from the log again. */
const KEPT_MAX_CHARS = 256 * 1024

export interface RunOutputOptions {
  log: Pick<EventLog, 'write' | 'totalChars'>
  executionId: string
  attempt: number
  maxLogChars: number
}

/** The output of one attempt on its way into the log: pieces are collected, and whoever writes waits for the log. */
export class RunOutput {
  readonly #options: RunOutputOptions
  #stream: OutputPiece['stream'] = 'stdout'
  #collected = ''
  #timer: NodeJS.Timeout | undefined
  #kept: Output | undefined = { stdout: '', stderr: '' }
  #isTruncated = false

  constructor(options: RunOutputOptions) {
    this.#options = options
  }

  /** Some of it was dropped: the log is full, or could not be written. */
  get isTruncated(): boolean {
    return this.#isTruncated
  }

  /** All of it, where it is short enough to be remembered. */
  get kept(): Output | undefined {
    return this.#kept
  }

  /** Order is kept within a stream and between them. The promise says when the log has caught up. */
  take({ stream, text }: OutputPiece): Promise<void> | undefined {
    if (text === '') return undefined
    let full: Promise<void> | undefined
    if (stream !== this.#stream || this.#collected.length + text.length > ENTRY_MAX_CHARS) full = this.flush()
    this.#stream = stream
    this.#collected += text
    if (this.#collected.length >= ENTRY_MAX_CHARS) return this.flush() ?? full
    this.#timer ??= setTimeout(() => void this.flush(), COLLECT_MS)
    return full
  }

  /** Hands the log what is collected. */
  flush(): Promise<void> | undefined {
    clearTimeout(this.#timer)
    this.#timer = undefined
    const text = this.#collected
    if (text === '') return undefined
    this.#collected = ''
    const { log, executionId, attempt, maxLogChars } = this.#options
    if (log.totalChars + text.length > maxLogChars) {
      this.#isTruncated = true
      return undefined
    }
    const entry: OutputEntry = { executionId, stream: this.#stream, text, ...(attempt > 1 && { attempt }) }
    this.#keep(text)
    try {
      return log.write('output', executionId, JSON.stringify(entry))?.catch(() => this.#fail())
    } catch {
      this.#fail()
      return undefined
    }
  }

  /** The log cannot be written: that the rest is missing is all that is known. The end of the run is stored later. */
  #fail(): void {
    this.#isTruncated = true
  }

  #keep(text: string): void {
    const kept = this.#kept
    if (!kept) return
    kept[this.#stream] += text
    if (kept.stdout.length + kept.stderr.length > KEPT_MAX_CHARS) this.#kept = undefined
  }
}
