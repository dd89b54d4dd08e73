import { MAX_LINE_BYTES } from './constants.ts'

/** What came is not what both ends agreed on. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError'
}

const NEWLINE = 10
/** Most unfinished lines are shorter; room for a longer one is given up after it. */
const KEPT_BYTES = 64 * 1024

/** Cuts a byte stream into lines of valid UTF-8, holding at most one unfinished line of bounded length. */
export class LineSplitter {
  readonly #maxBytes: number
  readonly #decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  /** The beginning of a line, and room for more. */
  #kept = new Uint8Array(0)
  #size = 0

  constructor(maxBytes: number = MAX_LINE_BYTES) {
    this.#maxBytes = maxBytes
  }

  /** The lines that this chunk completes. */
  *push(chunk: Uint8Array): Generator<string> {
    const first = chunk.indexOf(NEWLINE)
    if (first < 0) return this.#keep(chunk)
    const line = this.#take(chunk.subarray(0, first))
    if (line !== '') yield line
    const last = chunk.lastIndexOf(NEWLINE)
    if (last > first) yield* this.#splitWhole(chunk.subarray(first + 1, last))
    if (last + 1 < chunk.length) this.#keep(chunk.subarray(last + 1))
  }

  /** Most chunks hold many lines: to decode them together costs a fraction of decoding each. */
  *#splitWhole(bytes: Uint8Array): Generator<string> {
    for (const line of this.#decodeWhole(bytes)) if (line !== '') yield line
  }

  #decodeWhole(bytes: Uint8Array): Iterable<string> {
    try {
      return this.#decode(bytes).split('\n')
    } catch {
      // What comes before the line that is broken still counts.
      return this.#decodeEach(bytes)
    }
  }

  *#decodeEach(bytes: Uint8Array): Generator<string> {
    for (let start = 0; start <= bytes.length; ) {
      const newline = bytes.indexOf(NEWLINE, start)
      const end = newline < 0 ? bytes.length : newline
      yield this.#decode(bytes.subarray(start, end))
      start = end + 1
    }
  }

  /** Copied: a line that comes byte by byte would otherwise cost hundreds of times its length. */
  #keep(part: Uint8Array): void {
    const size = this.#size + part.length
    if (size > this.#maxBytes) throw new ProtocolError(`a line is longer than ${this.#maxBytes} bytes`)
    if (size > this.#kept.length) this.#kept = grown(this.#kept, size)
    this.#kept.set(part, this.#size)
    this.#size = size
  }

  #take(last: Uint8Array): string {
    if (this.#size === 0 && last.length <= this.#maxBytes) return this.#decode(last)
    this.#keep(last)
    const line = this.#decode(this.#kept.subarray(0, this.#size))
    this.#size = 0
    if (this.#kept.length > KEPT_BYTES) this.#kept = new Uint8Array(0)
    return line
  }

  #decode(bytes: Uint8Array): string {
    try {
      return this.#decoder.decode(bytes)
    } catch {
      throw new ProtocolError('a line is not UTF-8')
    }
  }
}

/** Twice as large, so that all the copying together stays below twice the length of the line. */
function grown(bytes: Uint8Array, size: number): Uint8Array<ArrayBuffer> {
  const larger = new Uint8Array(Math.max(size, 2 * bytes.length))
  larger.set(bytes)
  return larger
}
