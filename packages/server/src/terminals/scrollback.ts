const MAX_BYTES = 256 * 1024
/** No sequence or line worth keeping whole is longer. */
const MAX_CUT_SEARCH_BYTES = 4 * 1024
const NEWLINE = 0x0a
const ESCAPE = 0x1b
const MAX_SEQUENCE_CHARS = 32

/** Modes of a terminal that outlast the text around them: cursor keys, cursor, alternate screen, mouse, pasting. */
const MODES = new Set('1 7 12 25 47 1000 1002 1003 1004 1005 1006 1015 1047 1049 2004'.split(' '))
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with one.
const MODE_CHANGE = /\x1b\[\?([\d;]{1,24})([hl])/g

/** The last output of a terminal, so that whoever comes later sees what the others see. */
export class Scrollback {
  #chunks: Buffer[] = []
  #bytes = 0
  #isCut = false
  /** What was set or unset in what has been dropped. */
  readonly #modes = new Map<string, string>()
  #droppedTail = ''

  push(chunk: Buffer): void {
    this.#chunks.push(chunk)
    this.#bytes += chunk.length
    while (this.#bytes - (this.#chunks[0]?.length ?? 0) >= MAX_BYTES) this.#dropFirst()
  }

  /** Bytes that bring a fresh terminal to where the others are. */
  replay(): Buffer {
    const kept = Buffer.concat(this.#chunks)
    if (!this.#isCut) return kept
    const start = safeStart(kept)
    this.#noteModes(kept.subarray(0, start))
    const modes = [...this.#modes].map(([mode, how]) => `\x1b[?${mode}${how}`).join('')
    return Buffer.concat([Buffer.from(modes), kept.subarray(start)])
  }

  #dropFirst(): void {
    const dropped = this.#chunks.shift()
    if (dropped === undefined) return
    this.#bytes -= dropped.length
    this.#isCut = true
    this.#noteModes(dropped)
  }

  /** A sequence may lie across two chunks. */
  #noteModes(dropped: Buffer): void {
    const text = this.#droppedTail + dropped.toString('latin1')
    for (const [, list = '', how = ''] of text.matchAll(MODE_CHANGE)) {
      for (const mode of list.split(';')) if (MODES.has(mode)) this.#modes.set(mode, how)
    }
    this.#droppedTail = text.slice(-MAX_SEQUENCE_CHARS)
  }
}

/** Behind a line, else where a sequence or a character begins: half of one would be shown as rubbish. */
function safeStart(bytes: Buffer): number {
  const head = bytes.subarray(0, MAX_CUT_SEARCH_BYTES)
  const newline = head.indexOf(NEWLINE)
  if (newline >= 0) return newline + 1
  const sequence = head.indexOf(ESCAPE)
  if (sequence >= 0) return sequence
  const character = head.findIndex((byte) => (byte & 0xc0) !== 0x80)
  return Math.max(0, character)
}
