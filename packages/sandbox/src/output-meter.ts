const MB = 1024 * 1024
/** Seconds' worth of the rate that may come at once, so that what ends soon is not slowed down at all. */
const BURST_SECONDS = 8
/** Short pauses would cost more in timers than they hold back. */
const SHORTEST_PAUSE_MS = 50
/** Pauses that follow each other within this time are one excess. */
const EXCESS_GAP_MS = 10_000

/**
 * How fast a sandbox may send to its host: a token bucket that is filled only when it is found empty, so that the
 * clock is not asked for every chunk. After a long silence a burst can therefore be up to twice its size.
 */
export class OutputMeter {
  /** How often more came than the rate allows. */
  excesses = 0
  readonly #bytesPerMs: number
  readonly #burstBytes: number
  #allowedBytes: number
  #filledMs = performance.now()
  #lastPauseMs = Number.NEGATIVE_INFINITY

  constructor(mbPerSecond: number) {
    this.#bytesPerMs = (mbPerSecond * MB) / 1000
    this.#burstBytes = mbPerSecond * MB * BURST_SECONDS
    this.#allowedBytes = this.#burstBytes
  }

  /** Counts what came; says for how long nothing more may be read. */
  pauseAfter(bytes: number): number {
    this.#allowedBytes -= bytes
    return this.#allowedBytes >= 0 ? 0 : this.#fill()
  }

  #fill(): number {
    const now = performance.now()
    const earned = (now - this.#filledMs) * this.#bytesPerMs
    this.#allowedBytes = Math.min(this.#burstBytes, this.#allowedBytes + earned)
    this.#filledMs = now
    if (this.#allowedBytes >= 0) return 0
    if (now - this.#lastPauseMs > EXCESS_GAP_MS) this.excesses++
    this.#lastPauseMs = now
    return Math.max(SHORTEST_PAUSE_MS, -this.#allowedBytes / this.#bytesPerMs)
  }
}
