const LF = 0x0a
/** Many tiny chunks cost more as objects than as bytes, so they are joined from time to time. */
const MAX_PARTS = 64

/**
 * Cuts a byte stream into lines, wherever the chunks break. A line over `maxBytes` is skipped, not kept: memory is
 * bounded by it whatever the stream holds. The CR of a CRLF stays; empty lines are left out.
 */
export class LineSplitter {
  readonly #maxBytes: number
  readonly #onLine: (line: Buffer) => void
  #parts: Buffer[] = []
  #bytes = 0

  constructor(maxBytes: number, onLine: (line: Buffer) => void) {
    this.#maxBytes = maxBytes
    this.#onLine = onLine
  }

  push(chunk: Buffer): void {
    let start = 0
    for (let end = chunk.indexOf(LF); end >= 0; end = chunk.indexOf(LF, start)) {
      this.#add(chunk.subarray(start, end))
      this.end()
      start = end + 1
    }
    this.#add(chunk.subarray(start))
  }

  /** Takes what came as a whole line: the last one may lack its end. */
  end(): void {
    const line = this.#parts.length > 1 ? Buffer.concat(this.#parts) : this.#parts[0]
    this.#parts = []
    this.#bytes = 0
    if (line !== undefined) this.#onLine(line)
  }

  #add(part: Buffer): void {
    if (part.length === 0) return
    this.#bytes += part.length
    if (this.#bytes > this.#maxBytes) this.#parts = []
    else this.#parts.push(part)
    if (this.#parts.length > MAX_PARTS) this.#parts = [Buffer.concat(this.#parts)]
  }
}
