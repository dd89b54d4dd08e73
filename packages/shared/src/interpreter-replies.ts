import { MAX_INTERPRETER_LINE_BYTES, MAX_RESULT_BYTES, type MimeBundle, type RunEnd } from './interpreter.ts'
import { isObject, parseObject } from './json-object.ts'
import { ProtocolError } from './line-splitter.ts'

/** A line of an interpreter. Everything inside may have written it: reading one throws `ProtocolError` and nothing else. */
export type InterpreterReply =
  | { kind: 'ready' }
  | { kind: 'display'; isValue: boolean; data: MimeBundle; chars: number }
  /** Too deep to be written again. */
  | { kind: 'dropped' }
  | { kind: 'result'; json: string }
  | { kind: 'done'; end: RunEnd }

const RESULT_HEAD = '{"result":'
const MAX_BUNDLE_KEYS = 20
const MAX_DEPTH = 64
const MEDIA_TYPE = /^[\w!#$&^.+-]{1,100}\/[\w!#$&^.+-]{1,100}(;.{0,100})?$/
const MAX_NAME_CHARS = 200
const MAX_TEXT_CHARS = 100 * 1024

export function decodeReply(line: string): InterpreterReply {
  if (line.startsWith(RESULT_HEAD)) return decodeResult(line)
  if (line.length > MAX_INTERPRETER_LINE_BYTES) throw new ProtocolError('a line is too long')
  const value = parseObject(line)
  if (value.ready === true && hasOnly(value, ['ready'])) return { kind: 'ready' }
  if ('display' in value && hasOnly(value, ['display', 'value'])) return decodeDisplay(value, line.length)
  if (isObject(value.done) && hasOnly(value, ['done'])) return { kind: 'done', end: decodeEnd(value.done) }
  throw new ProtocolError('unknown line')
}

/** As an interpreter would write it. */
export function encodeDisplay({ isValue, data }: { isValue: boolean; data: MimeBundle }): string {
  return JSON.stringify({ display: data, ...(isValue && { value: true }) })
}

/** Nobody looks into a result here: it is the text between head and brace. */
function decodeResult(line: string): InterpreterReply {
  const json = line.slice(RESULT_HEAD.length, -1)
  if (!line.endsWith('}') || json === '') throw new ProtocolError('an unfinished result')
  if (json.length > MAX_RESULT_BYTES) throw new ProtocolError('a result is too long')
  return { kind: 'result', json }
}

function decodeDisplay({ display, value }: Record<string, unknown>, chars: number): InterpreterReply {
  if (!isObject(display) || (value !== undefined && typeof value !== 'boolean'))
    throw new ProtocolError('a display is not an object')
  const types = Object.keys(display)
  if (types.length > MAX_BUNDLE_KEYS || !types.every((type) => MEDIA_TYPE.test(type)))
    throw new ProtocolError('a display has keys that are not media types')
  return isShallow(display, MAX_DEPTH)
    ? { kind: 'display', isValue: value === true, data: display, chars }
    : { kind: 'dropped' }
}

/** Longer texts are cut. */
export function decodeEnd({ error, exitCode, ...rest }: Record<string, unknown>): RunEnd {
  if (Object.keys(rest).length > 0) throw new ProtocolError('an end with unknown fields')
  if (exitCode !== undefined && !isExitCode(exitCode)) throw new ProtocolError('an exit code is not a number')
  return {
    ...(error !== undefined && { error: decodeError(error) }),
    ...(exitCode !== undefined && { exitCode }),
  }
}

function decodeError(error: unknown): NonNullable<RunEnd['error']> {
  if (!isObject(error)) throw new ProtocolError('an error is not an object')
  const { name, message, traceback, ...rest } = error
  if (typeof name !== 'string' || typeof message !== 'string' || Object.keys(rest).length > 0)
    throw new ProtocolError('an error needs a name and a message')
  if (traceback !== undefined && typeof traceback !== 'string')
    throw new ProtocolError('a traceback is not text')
  return {
    name: name.slice(0, MAX_NAME_CHARS),
    message: message.slice(0, MAX_TEXT_CHARS),
    ...(traceback !== undefined && { traceback: traceback.slice(0, MAX_TEXT_CHARS) }),
  }
}

const isExitCode = (value: unknown): value is number =>
  Number.isInteger(value) && Math.abs(value as number) < 2 ** 32

const hasOnly = (value: object, keys: string[]) => Object.keys(value).every((key) => keys.includes(key))

/** What nests too deeply can be parsed, but not written again. */
function isShallow(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return true
  return levels > 0 && Object.values(value).every((part) => isShallow(part, levels - 1))
}
