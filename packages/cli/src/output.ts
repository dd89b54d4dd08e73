import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import pc from 'picocolors'
import { toSafeJson, toSafeLine, toSafeText } from './terminal-text.ts'

type Style = 'bold' | 'dim' | 'red' | 'green' | 'cyan'
/** Text as it is, or with a style. Whatever the text holds, it can only be shown. */
export type Part = string | { text: string; style: Style }

export const bold = (text: string): Part => ({ text, style: 'bold' })
export const dim = (text: string): Part => ({ text, style: 'dim' })
export const green = (text: string): Part => ({ text, style: 'green' })
export const cyan = (text: string): Part => ({ text, style: 'cyan' })

/** Help and usage errors, which commander has formatted. */
export const writeOut = (text: string) => void process.stdout.write(text)
export const writeErr = (text: string) => void process.stderr.write(text)

/**
 * Everything the command prints. Results go to stdout, everything about the work to stderr; with `isJson`
 * stdout carries JSON and nothing else.
 */
export class Output {
  readonly isJson: boolean
  readonly #hasColor: boolean
  #hasProgress = false

  constructor(options: { isJson: boolean; hasColor: boolean }) {
    this.isJson = options.isJson
    this.#hasColor = options.hasColor
  }

  /** The one result of a command: its document, or lines for people. */
  result(document: unknown, ...lines: Part[][]): void {
    if (this.isJson) this.event(document)
    else for (const parts of lines) this.line(...parts)
  }

  /** One line of a JSON stream. */
  event(document: unknown): void {
    this.#write(process.stdout, `${toSafeJson(document)}\n`)
  }

  line(...parts: Part[]): void {
    this.#write(process.stdout, `${this.#format(process.stdout, parts)}\n`)
  }

  /** Text that goes on where the last ended. */
  text(text: string): void {
    this.#write(process.stdout, toSafeText(text))
  }

  /** What a program wrote: exact for another program or file, harmless on a terminal. */
  data(data: Uint8Array | string): void {
    const isTTY = process.stdout.isTTY
    this.#write(process.stdout, isTTY ? toSafeText(Buffer.from(data).toString()) : data)
  }

  /** The same on stderr. */
  errorData(data: string): void {
    this.#write(process.stderr, process.stderr.isTTY ? toSafeText(data) : data)
  }

  /** Bytes for another program or file, as fast as it takes them. */
  async stream(parts: AsyncIterable<Uint8Array>): Promise<void> {
    await pipeline(Readable.from(parts), process.stdout, { end: false })
    this.#clearProgress()
  }

  note(...parts: Part[]): void {
    this.#write(process.stderr, `${this.#format(process.stderr, parts)}\n`)
  }

  /** Somebody looks on, so that lines may change as work goes on. */
  get isWatched(): boolean {
    return process.stderr.isTTY === true
  }

  /** stdout is a terminal, whose screen may be drawn anew. */
  get isScreen(): boolean {
    return process.stdout.isTTY === true && !this.isJson
  }

  /** What follows is drawn from the top of an empty screen. */
  clearScreen(): void {
    this.#write(process.stdout, '\x1b[H\x1b[2J')
  }

  /** One line that the next output replaces; without a terminal a plain line. */
  progress(text: string): void {
    const line = this.#format(process.stderr, [dim(toSafeLine(text))])
    this.#write(process.stderr, this.isWatched ? line : `${line}\n`)
    this.#hasProgress = this.isWatched
  }

  failure(what: string, next: string): void {
    this.note({ text: 'error:', style: 'red' }, ` ${toSafeLine(what)}`)
    this.note(dim('  next:'), ` ${toSafeLine(next)}`)
  }

  table(header: string[], rows: string[][]): void {
    const safe = rows.map((row) => row.map(toSafeLine))
    const widths = header.map((name, column) =>
      Math.max(name.length, ...safe.map((row) => row[column]?.length ?? 0)),
    )
    const pad = (row: string[]) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')
    this.line(bold(pad(header).trimEnd()))
    for (const row of safe) this.line(pad(row).trimEnd())
  }

  #write(stream: NodeJS.WriteStream, data: Uint8Array | string): void {
    this.#clearProgress()
    stream.write(data)
  }

  #clearProgress(): void {
    if (this.#hasProgress) process.stderr.write('\r\x1b[2K')
    this.#hasProgress = false
  }

  #format(stream: NodeJS.WriteStream, parts: Part[]): string {
    const colors = pc.createColors(this.#hasColor && stream.isTTY === true)
    return parts
      .map((part) =>
        typeof part === 'string' ? toSafeText(part) : colors[part.style](toSafeText(part.text)),
      )
      .join('')
  }
}
