const TILDE = 0x7e
const DOT = 0x2e
const RETURN = 0x0d
const NEWLINE = 0x0a

/** Finds `~.` at the beginning of a line among what is typed; `~~` there is one `~`. */
export class EscapeKeys {
  #isLineStart = true
  #isHeld = false

  /** What goes to the program, and whether the rest was to leave. */
  take(typed: Uint8Array): { data: Uint8Array; leaves: boolean } {
    const data: number[] = []
    for (const byte of typed) {
      if (this.#isHeld) {
        this.#isHeld = false
        if (byte === DOT) return { data: Uint8Array.from(data), leaves: true }
        data.push(TILDE)
        if (byte === TILDE) {
          this.#isLineStart = false
          continue
        }
      } else if (byte === TILDE && this.#isLineStart) {
        this.#isHeld = true
        continue
      }
      data.push(byte)
      this.#isLineStart = byte === RETURN || byte === NEWLINE
    }
    return { data: Uint8Array.from(data), leaves: false }
  }
}
