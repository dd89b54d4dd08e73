/** One server-sent event. `data` is text; Ash always puts JSON there. */
export interface SSEFrame {
  id?: string
  event?: string
  data: string
}

/** The wire form of a frame. `data` must hold no line break: JSON text never does. */
export function formatSSE(frame: SSEFrame): string {
  const id = frame.id === undefined ? '' : `id: ${frame.id}\n`
  const event = frame.event === undefined ? '' : `event: ${frame.event}\n`
  return `${id}${event}data: ${frame.data}\n\n`
}

const MAX_FRAME_CHARS = 64 * 1024 * 1024

/** Reads frames from a byte stream, as the HTML standard defines them; comments are skipped. */
export async function* parseSSE(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<SSEFrame> {
  const decoder = new TextDecoder()
  const lines = new TextLines()
  let frame = new PendingFrame()
  for await (const chunk of bytes) {
    for (const line of lines.push(decoder.decode(chunk, { stream: true }))) {
      if (line !== '') {
        frame.add(line)
        continue
      }
      const finished = frame.finish()
      if (finished) yield finished
      frame = new PendingFrame()
    }
    if (lines.size + frame.size > MAX_FRAME_CHARS)
      throw new Error(`SSE frame over ${MAX_FRAME_CHARS} characters`)
  }
}

/** Lines end in LF, CRLF or CR. A CR at the end of a chunk waits, since its LF may still come. */
class TextLines {
  size = 0
  #pending: string[] = []

  push(text: string): string[] {
    const hasOpenCR = text.endsWith('\r')
    const before = this.#pending.at(-1) === '\r' ? this.#pending.pop() : ''
    const lines = (before + (hasOpenCR ? text.slice(0, -1) : text)).split(/\r\n|\n|\r/)
    const rest = lines.pop()
    if (lines.length > 0) {
      lines[0] = this.#pending.join('') + lines[0]
      this.#pending = []
    }
    if (rest) this.#pending.push(rest)
    if (hasOpenCR) this.#pending.push('\r')
    this.size = this.#pending.reduce((sum, part) => sum + part.length, 0)
    return lines
  }
}

class PendingFrame {
  size = 0
  #data: string[] = []
  #id: string | undefined
  #event: string | undefined

  add(line: string): void {
    this.size += line.length
    const colon = line.indexOf(':')
    const field = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? '' : line.slice(colon + (line[colon + 1] === ' ' ? 2 : 1))
    if (field === 'data') this.#data.push(value)
    if (field === 'event') this.#event = value
    if (field === 'id') this.#id = value
  }

  /** A frame without data is none. */
  finish(): SSEFrame | undefined {
    if (this.#data.length === 0) return undefined
    return {
      ...(this.#id !== undefined && { id: this.#id }),
      ...(this.#event !== undefined && { event: this.#event }),
      data: this.#data.join('\n'),
    }
  }
}
