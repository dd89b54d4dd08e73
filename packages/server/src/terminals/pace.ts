const MB = 1024 * 1024
/** Nobody reads faster, and a flood is not to keep the server busy. */
const WATCHED_BYTES_PER_MS = (8 * MB) / 1000
/** What nobody looks at need not be fast at all. */
const UNWATCHED_BYTES_PER_MS = MB / 1000
/** So much comes at once before any of it is held back. */
const BURST_BYTES = 2 * MB

/** How fast a terminal is read. */
export class Pace {
  #allowed = BURST_BYTES
  #filledMs = performance.now()

  /** Milliseconds to wait after so many bytes. */
  after(bytes: number, isWatched: boolean): number {
    const bytesPerMs = isWatched ? WATCHED_BYTES_PER_MS : UNWATCHED_BYTES_PER_MS
    const now = performance.now()
    const earned = (now - this.#filledMs) * bytesPerMs
    this.#allowed = Math.min(BURST_BYTES, this.#allowed + earned) - bytes
    this.#filledMs = now
    return Math.max(0, -this.#allowed / bytesPerMs)
  }
}
