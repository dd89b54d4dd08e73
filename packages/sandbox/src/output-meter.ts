const MB = 1024 * 1024
/** Seconds' worth of the rate that may come at once, so that what ends soon is not slowed down at all. */
const BURST_SECONDS = 8
/** Of the server's one thread: reading what a sandbox sends may take this share of it, after a burst. */
const WORK_SHARE = 0.5
const WORK_BURST_MS = 2_000
/** Short pauses would cost more in timers than they hold back. */
const SHORTEST_PAUSE_MS = 50
/** Pauses that follow each other within this time are one excess. */
const EXCESS_GAP_MS = 10_000

/**
 * How much a sandbox may send to its host: bytes, and work to read them, since a few bytes of dense JSON cost as much
 * as many of text.
 */
export class OutputMeter {
  /** How often more came than is allowed. */
  excesses = 0
  readonly #bytes: Bucket
  readonly #work = new Bucket(WORK_SHARE, WORK_BURST_MS)
  #lastPauseMs = Number.NEGATIVE_INFINITY

  constructor(mbPerSecond: number) {
    this.#bytes = new Bucket((mbPerSecond * MB) / 1000, mbPerSecond * MB * BURST_SECONDS)
  }

  /** Counts what came, and how long it took to read; says for how long nothing more may be read. */
  pauseAfter(bytes: number, workMs = 0): number {
    const pauseMs = Math.max(this.#bytes.take(bytes), this.#work.take(workMs))
    if (pauseMs === 0) return 0
    const now = performance.now()
    if (now - this.#lastPauseMs > EXCESS_GAP_MS) this.excesses++
    this.#lastPauseMs = now
    return Math.max(SHORTEST_PAUSE_MS, pauseMs)
  }
}

/**
 * A token bucket that is filled only when it is found empty, so that the clock is not asked every time. After a long
 * silence a burst can therefore be up to twice its size.
 */
class Bucket {
  readonly #perMs: number
  readonly #burst: number
  #allowed: number
  #filledMs = performance.now()

  constructor(perMs: number, burst: number) {
    this.#perMs = perMs
    this.#burst = burst
    this.#allowed = burst
  }

  /** Milliseconds until what was taken has been earned. */
  take(amount: number): number {
    this.#allowed -= amount
    if (this.#allowed >= 0) return 0
    const now = performance.now()
    this.#allowed = Math.min(this.#burst, this.#allowed + (now - this.#filledMs) * this.#perMs)
    this.#filledMs = now
    return this.#allowed >= 0 ? 0 : -this.#allowed / this.#perMs
  }
}
