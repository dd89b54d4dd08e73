import type { OutputPiece } from './interpreter.ts'

/** A stream of Node's, or whatever looks like one. */
export interface ReadableEnd {
  on(event: string, listener: (...values: never[]) => void): unknown
  pause(): unknown
  resume(): unknown
  destroy(): unknown
}

/** Takes a piece; nothing more is read while the promise is pending. */
export type TakePiece = (piece: OutputPiece) => Promise<void> | void

const MAX_PIECE_CHARS = 64 * 1024
/** More than this waits to be taken: then nothing is read, also within a round of the event loop. */
const MAX_WAITING_CHARS = 256 * 1024
/** Of each stream, between runs: threads and background work go on writing. */
const MAX_LATE_BYTES = 64 * 1024
/** What was written before is in the pipe, and a round of the event loop reads what is there. */
const QUIET_ROUNDS = 2

interface Tap {
  name: OutputPiece['stream']
  stream: ReadableEnd
  decoder: ReturnType<typeof newDecoder>
  bytes: number
}

/** The two outputs of an interpreter as one row of pieces, bounded for each run. */
export class InterpreterOutput {
  /** Resolves when both streams are at their end. */
  readonly ended: Promise<unknown>
  readonly #taps: Tap[]
  readonly #onFailure: (error: unknown) => void
  #take: TakePiece | undefined
  #maxBytes = MAX_LATE_BYTES
  #waiting: OutputPiece[] = []
  #waitingChars = 0
  #isTruncated = false
  #chunks = 0
  /** Handing on, until nothing waits. */
  #handing: Promise<void> | undefined

  /** `onFailure` hears of a taker that failed. */
  constructor(stdout: ReadableEnd, stderr: ReadableEnd, onFailure: (error: unknown) => void) {
    this.#onFailure = onFailure
    this.#taps = [tap('stdout', stdout), tap('stderr', stderr)]
    this.ended = Promise.all(this.#taps.map((one) => this.#listen(one)))
  }

  /** From here on output is this run's; what came since the last one is its beginning. */
  begin(take: TakePiece, maxBytes: number): void {
    this.#take = take
    this.#maxBytes = maxBytes
    void this.#handOn()
  }

  /** Ends the run; what was not taken by now is dropped. Says whether anything was dropped. Safe to call again. */
  finish(): boolean {
    if (this.#take === undefined) return false
    const hasDropped = this.#isTruncated || !this.#isTaken
    this.#abandon()
    return hasDropped
  }

  /** Reads what was written before now; of what goes on writing no more than `maxMs`. */
  async settle(maxMs: number): Promise<void> {
    let leftMs = maxMs
    for (let quiet = 0; quiet < QUIET_ROUNDS && leftMs > 0; ) {
      const [chunks, startedMs] = [this.#chunks, performance.now()]
      await new Promise((resolve) => setImmediate(resolve))
      quiet = this.#chunks === chunks && this.#handing === undefined ? quiet + 1 : 0
      leftMs -= performance.now() - startedMs
      // The time of a slow taker is not the interpreter's.
      await this.#handing
    }
    while (!this.#isTaken) await this.#handOn()
  }

  /** Nothing is read any more. */
  destroy(): void {
    for (const { stream } of this.#taps) stream.destroy()
  }

  get #isTaken(): boolean {
    return this.#handing === undefined && (this.#take === undefined || this.#waiting.length === 0)
  }

  /** Nobody takes the rest; what comes from here on is the next run's. */
  #abandon(): void {
    this.#take = undefined
    this.#handing = undefined
    this.#waiting = []
    this.#waitingChars = 0
    this.#maxBytes = MAX_LATE_BYTES
    this.#isTruncated = false
    for (const one of this.#taps) one.bytes = 0
    this.#resume()
  }

  #listen(one: Tap): Promise<void> {
    one.stream.on('data', (chunk: Uint8Array) => this.#receive(one, chunk))
    return new Promise((resolve) => {
      const end = () => {
        this.#push(one.name, one.decoder.decode())
        resolve()
      }
      one.stream.on('end', end)
      one.stream.on('close', end)
      one.stream.on('error', end)
    })
  }

  #receive(one: Tap, chunk: Uint8Array): void {
    this.#chunks++
    const room = Math.max(0, this.#maxBytes - one.bytes)
    one.bytes += Math.min(room, chunk.length)
    const isCut = chunk.length > room
    if (isCut) this.#isTruncated = true
    if (room === 0) return
    this.#push(one.name, one.decoder.decode(isCut ? chunk.subarray(0, room) : chunk, { stream: true }))
    if (isCut) one.decoder = newDecoder() // Half a character may be left over.
  }

  #push(name: OutputPiece['stream'], text: string): void {
    if (text === '') return
    const last = this.#waiting.at(-1)
    if (last?.stream === name) last.text += text
    else this.#waiting.push({ stream: name, text })
    this.#waitingChars += text.length
    if (this.#take !== undefined && this.#waitingChars > MAX_WAITING_CHARS) this.#pause()
    void this.#handOn()
  }

  #handOn(): Promise<void> | undefined {
    if (this.#take === undefined || this.#waiting.length === 0) return this.#handing
    this.#handing ??= this.#handAll(this.#take)
    return this.#handing
  }

  /** A round later, so that what comes together goes together. */
  async #handAll(take: TakePiece): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve))
    try {
      for (let piece = this.#next(take); piece !== undefined; piece = this.#next(take)) {
        const busy = take(piece)
        if (busy === undefined) continue
        this.#pause()
        await busy
      }
    } catch (error) {
      if (this.#take !== take) return
      this.#abandon()
      this.#onFailure(error)
      return
    }
    if (this.#take !== take) return // The run is over.
    this.#handing = undefined
    this.#resume()
  }

  #next(take: TakePiece): OutputPiece | undefined {
    const [first] = this.#waiting
    if (first === undefined || this.#take !== take) return undefined
    const size = pieceSize(first.text)
    const text = first.text.slice(0, size)
    this.#waitingChars -= size
    if (size === first.text.length) this.#waiting.shift()
    else first.text = first.text.slice(size)
    return { stream: first.stream, text }
  }

  #pause(): void {
    for (const { stream } of this.#taps) stream.pause()
  }

  #resume(): void {
    for (const { stream } of this.#taps) stream.resume()
  }
}

const newDecoder = () => new TextDecoder('utf-8', { ignoreBOM: true })

const tap = (name: Tap['name'], stream: ReadableEnd): Tap => ({
  name,
  stream,
  decoder: newDecoder(),
  bytes: 0,
})

/** Not within a character of two halves. */
function pieceSize(text: string): number {
  if (text.length <= MAX_PIECE_CHARS) return text.length
  const last = text.charCodeAt(MAX_PIECE_CHARS - 1)
  return last >= 0xd800 && last < 0xdc00 ? MAX_PIECE_CHARS - 1 : MAX_PIECE_CHARS
}
