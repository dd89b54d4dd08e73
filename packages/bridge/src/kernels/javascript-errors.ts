import { Buffer } from 'node:buffer'
import { inspect } from 'node:util'
import type { RunError } from '@ash-ai/shared'
import { CELL_GLOBAL } from './cell-global.ts'

const MAX_ERROR_BYTES = 100 * 1024
/** Name of the scripts by which the interpreter calls code. */
export const OWN_FILE = '<ash>'
const OWN_FRAME = /^\s+at .*(javascript-kernel\.mjs|<ash>|\bnode:(vm|internal\/))/
const HOSTED = new RegExp(`\\b${CELL_GLOBAL}\\.(meta|import)\\b`, 'g')

/** An error of a run that its code did not throw. */
export class RunFailure extends Error {
  constructor(name: string, message: string) {
    super(message)
    this.name = name
  }
}

/** What was thrown, as data. User code may have made it so that looking at it throws again. */
export function errorOf(thrown: unknown): RunError {
  try {
    if (!isError(thrown)) return bounded({ name: 'Error', message: inspect(thrown) })
    const { name, message } = thrown
    if (thrown instanceof RunFailure) return bounded({ name, message })
    return bounded({
      name: String(name),
      message: asWritten(String(message)),
      traceback: tracebackOf(thrown),
    })
  } catch {
    return { name: 'Error', message: 'An error that cannot be shown' }
  }
}

/** As Node prints it, without the frames of the interpreter. */
export function tracebackOf(thrown: unknown): string {
  const lines = inspect(thrown).split('\n')
  return asWritten(lines.filter((line) => !OWN_FRAME.test(line)).join('\n'))
}

const asWritten = (text: string) =>
  text.replace(HOSTED, (_, name: string) => (name === 'meta' ? 'import.meta' : 'import'))

/** Where acorn found a fault, said as the others are. */
export function syntaxError(error: unknown, filename: string, code: string): unknown {
  const place = (error as { loc?: { line: number; column: number } }).loc
  if (!(error instanceof SyntaxError) || place === undefined) return error
  const message = error.message.replace(/ \(\d+:\d+\)$/, '')
  const told = new SyntaxError(`${message} (${filename}, line ${place.line})`)
  const line = (code.split('\n')[place.line - 1] ?? '').slice(0, 1000)
  told.stack = `${filename}:${place.line}\n${line}\n${' '.repeat(Math.min(place.column, 1000))}^\n\nSyntaxError: ${message}`
  return told
}

/** Cuts the middle out: what is said first and last matters most. */
export function cut(text: string, maxBytes: number): string {
  if (Buffer.byteLength(text) <= maxBytes) return text
  const bytes = Buffer.from(text)
  const half = Math.floor(maxBytes / 2)
  return `${bytes.subarray(0, half).toString()}\n… cut …\n${bytes.subarray(-half).toString()}`
}

const isError = (thrown: unknown): thrown is Error =>
  thrown instanceof Error || Object.prototype.toString.call(thrown) === '[object Error]'

function bounded({ name, message, traceback }: RunError): RunError {
  return {
    name: cut(name, 1000),
    message: cut(message, MAX_ERROR_BYTES),
    ...(traceback !== undefined && { traceback: cut(traceback, MAX_ERROR_BYTES) }),
  }
}
