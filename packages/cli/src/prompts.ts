import { createInterface } from 'node:readline'
import type { Context } from './context.ts'

/** Lines the user types, or stdin holds, until Ctrl-D. The prompt goes to stderr: stdout is for answers. */
export async function* readPrompts({ interrupts, signal }: Context): AsyncGenerator<string> {
  const isTerminal = process.stdin.isTTY === true && process.stderr.isTTY === true
  const lines = createInterface({
    input: process.stdin,
    ...(isTerminal && { output: process.stderr }),
    terminal: isTerminal,
    prompt: '> ',
  })
  // In a terminal readline takes Ctrl-C itself.
  lines.on('SIGINT', () => interrupts.press())
  const close = () => lines.close()
  signal.addEventListener('abort', close)
  try {
    if (isTerminal) lines.prompt()
    for await (const line of lines) {
      if (line.trim() !== '') yield line
      if (isTerminal) lines.prompt()
    }
    signal.throwIfAborted()
  } finally {
    signal.removeEventListener('abort', close)
    lines.close()
  }
}
