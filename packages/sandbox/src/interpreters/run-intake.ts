import {
  type BridgeEvent,
  decodeEnd,
  decodeReply,
  type ExecuteResult,
  MAX_RESULT_BYTES,
  MAX_RESULTS_BYTES,
  MAX_RUN_OUTPUT_BYTES,
  ProtocolError,
  type RunMetrics,
  type RunOutcome,
} from '@ash-ai/shared'
import type { TakeOutput } from './interpreter.ts'

type OutputEvent = Extract<BridgeEvent, { ev: 'output' }>

/** The bridge writes rich results anew, which may take more room than they came with. */
const MAX_DISPLAY_CHARS = 2 * MAX_RESULTS_BYTES
const MAX_DISPLAYS = 1_000

/** What a bridge sends of one run, held to the limits that it should have kept itself. */
export class RunIntake {
  /** The results cannot be believed. */
  isBroken = false
  hasDropped = false
  readonly results: RunOutcome['results'] = []
  readonly #take: TakeOutput
  readonly #chars = { stdout: 0, stderr: 0 }
  #result: string[] = []
  #resultChars = 0
  #displayChars = 0

  constructor(take: TakeOutput) {
    this.#take = take
  }

  /** As it came; undefined where none did. */
  get result(): string | undefined {
    return this.#result.length === 0 ? undefined : this.#result.join('')
  }

  take({ stream, data }: OutputEvent): Promise<void> | void {
    if (stream === 'result') this.#takeResult(data)
    else if (stream === 'display') this.#takeDisplay(data)
    else return this.#takeText(stream, data)
  }

  #takeText(stream: 'stdout' | 'stderr', text: string): Promise<void> | void {
    this.#chars[stream] += text.length
    // Characters, which are no more than the bytes were: one that is no text has become three.
    if (this.#chars[stream] <= MAX_RUN_OUTPUT_BYTES) return this.#take({ stream, text })
    this.hasDropped = true
  }

  #takeResult(piece: string): void {
    this.#resultChars += piece.length
    if (this.#resultChars > MAX_RESULT_BYTES) this.#distrust()
    else this.#result.push(piece)
  }

  #takeDisplay(line: string): void {
    this.#displayChars += line.length
    if (this.#displayChars > MAX_DISPLAY_CHARS || this.results.length >= MAX_DISPLAYS) {
      this.hasDropped = true
      return
    }
    try {
      const reply = decodeReply(line)
      if (reply.kind === 'display') this.results.push({ isValue: reply.isValue, data: reply.data })
      else if (reply.kind === 'dropped') this.hasDropped = true
      else this.#distrust()
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      this.#distrust()
    }
  }

  #distrust(): void {
    this.isBroken = true
    this.#result = []
  }
}

const STATUSES = ['completed', 'failed', 'timeout', 'cancelled'] as const

/** What a bridge says of a run that has ended. Throws `ProtocolError` where it says something else. */
export function decodeOutcome(data: unknown): ExecuteResult {
  if (!isObject(data)) throw new ProtocolError('an outcome is not an object')
  const { error, exitCode, signal, truncated, isOver } = data
  const status = STATUSES.find((known) => known === data.status)
  if (status === undefined || typeof truncated !== 'boolean' || typeof isOver !== 'boolean')
    throw new ProtocolError('a malformed outcome')
  if (signal !== undefined && !(typeof signal === 'string' && /^SIG[A-Z0-9]{1,12}$/.test(signal)))
    throw new ProtocolError('a signal that is none')
  const metrics = decodeMetrics(data.metrics)
  const end = decodeEnd({ error, exitCode })
  return { status, ...end, ...(signal !== undefined && { signal }), truncated, metrics, isOver }
}

function decodeMetrics(metrics: unknown): RunMetrics {
  if (!isObject(metrics)) throw new ProtocolError('an outcome without measurements')
  const amount = (key: keyof RunMetrics) => {
    const value = metrics[key]
    if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value
    throw new ProtocolError(`a measurement that is none: ${key}`)
  }
  return {
    wallMs: amount('wallMs'),
    cpuMs: amount('cpuMs'),
    peakMemoryBytes: amount('peakMemoryBytes'),
    ioReadBytes: amount('ioReadBytes'),
    ioWriteBytes: amount('ioWriteBytes'),
  }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
