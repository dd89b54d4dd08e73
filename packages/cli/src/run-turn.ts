import { text } from 'node:stream/consumers'
import type { SendOptions } from '@ash-ai/sdk'
import type { Context } from './context.ts'
import { CliError, EXIT, Interrupted } from './failure.ts'
import { PermissionPrompt } from './permission-prompt.ts'
import type { Lines } from './prompts.ts'
import { TurnPrinter } from './turn-printer.ts'

/**
 * Sends a message and shows its turn. Ctrl-C stops the agent, not just the display. What the agent asks is put to
 * the user where `openLines` gives a way to.
 */
export async function runTurn(
  context: Context,
  sessionId: string,
  content: string,
  options: SendOptions = {},
  openLines?: () => Lines,
): Promise<void> {
  const { client, interrupts, output, signal } = context
  let isInterrupted = false
  const release = interrupts.handle(() => {
    isInterrupted = true
    output.note('Interrupting… (Ctrl-C again to leave at once)')
    client.sessions.interrupt(sessionId).catch((error: Error) => output.note(error.message))
  })
  const printer = new TurnPrinter(output)
  const permissions = new PermissionPrompt(context, sessionId, openLines)
  try {
    const turn = client.sessions.send(sessionId, content, { ...options, signal })
    for await (const event of turn) {
      printer.print(event)
      permissions.handle(event)
    }
    printer.end()
    if (isInterrupted) throw new Interrupted('Interrupted')
    await turn.result()
  } finally {
    printer.end()
    await permissions.close()
    release()
  }
}

/** The message given, or with `-` what stdin holds. */
export async function readMessage(message: string): Promise<string> {
  const content = message === '-' ? await text(process.stdin) : message
  if (content.trim() !== '') return content
  throw new CliError(EXIT.usage, 'The message is empty', 'Give a text, or "-" and the text on stdin')
}
