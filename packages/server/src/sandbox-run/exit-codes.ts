import type { RunOutcome } from '@ash-ai/shared'

export const EXIT = {
  ok: 0,
  failed: 1,
  unreadable: 2,
  noHandler: 3,
  timeout: 4,
  noSandbox: 5,
  interrupted: 130,
  outOfMemory: 137,
} as const

/** Ends the command: what to say, and with which code. */
export class RunStop extends Error {
  readonly exitCode: number

  constructor(exitCode: number, message: string, options?: ErrorOptions) {
    super(message, options)
    this.exitCode = exitCode
  }
}

const SYNTAX_ERRORS = ['SyntaxError', 'IndentationError', 'TabError']
/** The script itself has none: such an error has no stack above it. */
const STACK = /^Traceback |^ {4}at /m

export function exitCodeOf({ status, error }: Pick<RunOutcome, 'status' | 'error'>): number {
  if (status === 'completed') return EXIT.ok
  if (status === 'timeout') return EXIT.timeout
  if (status === 'cancelled') return EXIT.interrupted
  if (error === undefined) return EXIT.failed
  const { name, traceback = '' } = error
  if (name === 'OutOfMemory') return EXIT.outOfMemory
  const isSyntax = SYNTAX_ERRORS.includes(name) && !STACK.test(traceback)
  return name === 'HandlerNotFound' || isSyntax ? EXIT.noHandler : EXIT.failed
}
