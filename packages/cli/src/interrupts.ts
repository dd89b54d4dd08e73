import { EXIT, Interrupted } from './failure.ts'

/** One key press reaches this process twice when a parent forwards signals from the same terminal. */
const SAME_PRESS_MS = 250

/** Ctrl-C: the first asks the work at hand to stop, the second leaves at once. */
export class Interrupts {
  readonly #abort = new AbortController()
  #handler: (() => void) | undefined
  #pressedAt = 0
  #isStopping = false

  /** Aborted by Ctrl-C where nobody else handles it. */
  get signal(): AbortSignal {
    return this.#abort.signal
  }

  listen(): void {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => this.press())
  }

  /** `handler` is called instead of aborting, until the function returned is called. */
  handle(handler: () => void): () => void {
    this.#handler = handler
    this.#isStopping = false
    return () => {
      this.#handler = undefined
      this.#isStopping = false
    }
  }

  press(): void {
    const now = Date.now()
    if (now - this.#pressedAt < SAME_PRESS_MS) return
    this.#pressedAt = now
    if (this.#isStopping) process.exit(EXIT.interrupted)
    this.#isStopping = true
    if (this.#handler) this.#handler()
    else this.#abort.abort(new Interrupted('Interrupted'))
  }
}
