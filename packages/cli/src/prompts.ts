import { createInterface, type Interface } from 'node:readline'
import type { Context } from './context.ts'

const isTerminal = () => process.stdin.isTTY === true && process.stderr.isTTY === true

/** Lines the user types, or stdin holds. Prompts go to stderr: stdout is for answers. */
export class Lines {
  readonly #lines: Interface
  readonly #signal: AbortSignal
  readonly #isTerminal = isTerminal()
  readonly #close = () => this.#lines.close()

  /** Somebody sits there who can be asked. */
  static canAsk(): boolean {
    return isTerminal()
  }

  constructor({ interrupts, signal }: Context) {
    this.#signal = signal
    this.#lines = createInterface({
      input: process.stdin,
      ...(this.#isTerminal && { output: process.stderr }),
      terminal: this.#isTerminal,
      prompt: '> ',
    })
    // In a terminal readline takes Ctrl-C itself.
    this.#lines.on('SIGINT', () => interrupts.press())
    signal.addEventListener('abort', this.#close)
  }

  /** Each line that says something, until Ctrl-D. */
  async *prompts(): AsyncGenerator<string> {
    if (this.#isTerminal) this.#lines.prompt()
    for await (const line of this.#lines) {
      if (line.trim() !== '') yield line
      if (this.#isTerminal) this.#lines.prompt()
    }
    this.#signal.throwIfAborted()
  }

  /** The next line typed: in a conversation, one typed ahead is the next prompt and no answer. Undefined where none comes. */
  ask(question: string, signal: AbortSignal): Promise<string | undefined> {
    return new Promise((resolve) => {
      if (signal.aborted) return resolve(undefined)
      const none = () => resolve(undefined)
      this.#lines.once('close', none)
      signal.addEventListener('abort', none)
      this.#lines.question(question, { signal }, (line) => {
        this.#lines.off('close', none)
        signal.removeEventListener('abort', none)
        resolve(line)
      })
    })
  }

  close(): void {
    this.#signal.removeEventListener('abort', this.#close)
    this.#lines.close()
  }
}
