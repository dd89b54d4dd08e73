import { type Deadline, orConnectionError } from './deadline.ts'
import { AshReplyError } from './errors.ts'

/** The bytes of a reply as they arrive. Leaving the iteration closes the connection. */
export class ByteStream implements AsyncIterable<Uint8Array> {
  readonly #reader: ReadableStreamDefaultReader<Uint8Array> | undefined
  readonly #deadline: Deadline
  readonly #idleTimeoutMs: number
  readonly #baseUrl: string
  readonly headers: Headers

  constructor(
    response: Response,
    mediaType: string,
    deadline: Deadline,
    idleTimeoutMs: number,
    baseUrl: string,
  ) {
    const type = response.headers.get('content-type') ?? ''
    if (mediaType !== '*/*' && !type.startsWith(mediaType)) {
      // The error below is the news; that the unwanted body could not be dropped is not.
      response.body?.cancel().catch(() => {})
      throw new AshReplyError(`Expected ${mediaType}, got "${type}"`, { status: response.status })
    }
    this.headers = response.headers
    this.#reader = response.body?.getReader()
    this.#deadline = deadline
    this.#idleTimeoutMs = idleTimeoutMs
    this.#baseUrl = baseUrl
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    try {
      while (this.#reader !== undefined) {
        this.#deadline.extend(this.#idleTimeoutMs)
        const { done, value } = await orConnectionError(this.#reader.read(), this.#deadline, this.#baseUrl)
        if (done) return
        // A slow consumer is no silent server: time counts only while waiting for bytes.
        this.#deadline.extend(0)
        yield value
      }
    } finally {
      this.close()
    }
  }

  close(): void {
    this.#deadline.end()
    // A broken or finished reader rejects: nothing is left to close then.
    this.#reader?.cancel().catch(() => {})
  }
}
