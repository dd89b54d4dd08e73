import { constants } from 'node:os'

/** Signals that kill because something went wrong; a program that ends with such a number by choice says the same. */
const DEADLY = ['SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGILL', 'SIGKILL', 'SIGSEGV', 'SIGSYS', 'SIGTRAP'] as const

/** bubblewrap, as a shell does, tells of a program killed by a signal by a code of 128 and its number. */
export function deadlySignal(code: number | null): NodeJS.Signals | null {
  return DEADLY.find((name) => constants.signals[name] + 128 === code) ?? null
}
