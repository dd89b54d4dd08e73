import { ProtocolError } from './line-splitter.ts'

/** A longer line is looked at before it is parsed: text is cheap, but many small values cost seconds and gigabytes. */
const LARGE_CHARS = 1024 * 1024
const MAX_VALUES_OF_LARGE = 250_000

/** Throws `ProtocolError` for anything but one JSON object, and for what would cost too much to read. */
export function parseObject(text: string): Record<string, unknown> {
  if (text.length > LARGE_CHARS) assertFewValues(text)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new ProtocolError('a line is not JSON')
  }
  if (!isObject(value)) throw new ProtocolError('a line is not a JSON object')
  return value
}

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function assertFewValues(text: string): void {
  let values = 0
  let isInString = false
  for (let index = 0; index < text.length; index++) {
    const char = text.charCodeAt(index)
    if (char === QUOTE) isInString = !isInString
    else if (isInString) index += char === BACKSLASH ? 1 : 0
    else if (char === COMMA || char === OPEN_BRACKET || char === OPEN_BRACE) values++
  }
  if (values > MAX_VALUES_OF_LARGE)
    throw new ProtocolError(
      `a line over ${LARGE_CHARS} characters has more than ${MAX_VALUES_OF_LARGE} values`,
    )
}
const QUOTE = 34
const COMMA = 44
const OPEN_BRACKET = 91
const BACKSLASH = 92
const OPEN_BRACE = 123
