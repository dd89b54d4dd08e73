import { type SdkMessage, type SessionEvent, textDeltaOf, textOf, toolUsesOf } from '@ash-ai/sdk'
import { dim, type Output } from './output.ts'
import { toSafeLine } from './terminal-text.ts'

const MAX_TOOL_INPUT_CHARS = 100

/** Shows a turn as it happens: the answer on stdout, tool calls on stderr; with `--json`, every event. */
export class TurnPrinter {
  readonly #output: Output
  /** What previews have shown of the text block that is not complete yet. */
  #preview = ''
  #isLineOpen = false

  constructor(output: Output) {
    this.#output = output
  }

  print(event: SessionEvent): void {
    if (this.#output.isJson) this.#output.event(event)
    else if (event.type === 'message') this.#printMessage(event.message)
    else if (event.type === 'permission_request') this.#closeLine()
  }

  /** To be called when the turn is over, however it ended. */
  end(): void {
    this.#closeLine()
  }

  #printMessage(message: SdkMessage): void {
    const delta = textDeltaOf(message)
    this.#preview += delta
    this.#printText(delta)
    const text = textOf(message)
    if (text !== '') this.#printBlock(text)
    for (const { name, input } of toolUsesOf(message)) this.#printTool(name, input)
  }

  /** A complete block: what its previews have not shown, be it nothing or everything. */
  #printBlock(text: string): void {
    const isContinued = text.startsWith(this.#preview)
    if (!isContinued) this.#closeLine()
    this.#printText(isContinued ? text.slice(this.#preview.length) : text)
    this.#preview = ''
    this.#closeLine()
  }

  #printTool(name: string, input: unknown): void {
    this.#closeLine()
    const text = toSafeLine(`${name} ${JSON.stringify(input)}`)
    const isLong = text.length > MAX_TOOL_INPUT_CHARS
    this.#output.note(dim(`  ⚙ ${isLong ? `${text.slice(0, MAX_TOOL_INPUT_CHARS)}…` : text}`))
  }

  #printText(text: string): void {
    if (text === '') return
    this.#output.text(text)
    this.#isLineOpen = !text.endsWith('\n')
  }

  #closeLine(): void {
    if (this.#isLineOpen) this.#output.text('\n')
    this.#isLineOpen = false
  }
}
