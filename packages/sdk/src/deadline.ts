import { AshConnectionError, toConnectionError } from './errors.ts'

/**
 * A signal that fires when the caller's does or when `timeoutMs` pass without `extend`. `end` must be called:
 * it lets go of the timer and of the caller's signal, and of what is still being sent after the reply.
 */
export class Deadline {
  readonly #controller = new AbortController()
  readonly #timeoutMs: number
  readonly #caller: AbortSignal | undefined
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(timeoutMs: number, caller: AbortSignal | undefined) {
    this.#timeoutMs = timeoutMs
    this.#caller = caller
    if (caller?.aborted) this.#onAbort()
    caller?.addEventListener('abort', this.#onAbort)
    this.extend()
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** Starts the time anew, or with another length. Zero and infinity mean no limit. */
  extend(timeoutMs = this.#timeoutMs): void {
    clearTimeout(this.#timer)
    if (timeoutMs <= 0 || timeoutMs > MAX_TIMER_MS || this.signal.aborted) return
    this.#timer = setTimeout(() => {
      this.#controller.abort(new AshConnectionError('timeout', `No answer within ${timeoutMs} ms`))
    }, timeoutMs)
  }

  end(): void {
    clearTimeout(this.#timer)
    this.#caller?.removeEventListener('abort', this.#onAbort)
    this.#controller.abort()
  }

  readonly #onAbort = () => {
    clearTimeout(this.#timer)
    this.#controller.abort(this.#caller?.reason)
  }
}

/** Longer delays overflow a timer, which would then fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1

/** Failures of `work` as callers see them: their own abort as it is, anything else as a connection error. */
export async function orConnectionError<T>(work: Promise<T>, deadline: Deadline, url: string): Promise<T> {
  try {
    return await work
  } catch (error) {
    throw deadline.signal.aborted ? deadline.signal.reason : toConnectionError(error, url)
  }
}

/** Waits, or rejects with the signal's reason. */
export function sleep(delayMs: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason)
    const onAbort = () => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort)
      resolve()
    }, delayMs)
    signal?.addEventListener('abort', onAbort, { once: true })
  })
}
