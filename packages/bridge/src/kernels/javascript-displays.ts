import { Buffer } from 'node:buffer'
import { inspect } from 'node:util'
import { MAX_RESULT_BYTES, type MimeBundle, TABLE_TYPE } from '@ash-ai/shared'
import { cut, errorOf, RunFailure } from './javascript-errors.ts'

const { stringify } = JSON
const MAX_TEXT_BYTES = 1024 * 1024
const MAX_TABLE_ROWS = 1000
const MAX_BUNDLE_KEYS = 20
const MAX_DEPTH = 100
const DISPLAY_METHOD = Symbol.for('ash.display')
const MEDIA_TYPE = /^[\w!#$&^.+-]{1,100}\/[\w!#$&^.+-]{1,100}$/
const IMAGES: [type: string, start: number[]][] = [
  ['image/png', [0x89, 0x50, 0x4e, 0x47]],
  ['image/jpeg', [0xff, 0xd8, 0xff]],
]

/** What `display(value, mime)` shows. */
export function displayBundle(value: unknown, mime?: unknown): MimeBundle {
  if (typeof mime === 'string' && MEDIA_TYPE.test(mime)) return { [mime]: encoded(value) }
  if (typeof value === 'string') return { 'text/plain': cut(value, MAX_TEXT_BYTES) }
  return isMimeBundle(value) ? bundleFrom(value) : valueBundle(value)
}

/** What is shown of the value of a run. */
export function valueBundle(value: unknown): MimeBundle {
  const bundle: MimeBundle = { 'text/plain': textOf(value) }
  if (typeof value !== 'object' || value === null) return bundle
  try {
    return { ...bundle, ...richParts(value) }
  } catch (error) {
    const { name, message } = errorOf(error)
    return { 'text/plain': `${bundle['text/plain']}\n(showing it threw ${name}: ${message})` }
  }
}

/** Strict: throws `RunFailure` for what is no JSON. Nothing at all is null. */
export function resultJson(value: unknown): string {
  const json = value === undefined ? 'null' : tryStringify(value)
  if (Buffer.byteLength(json) > MAX_RESULT_BYTES)
    throw new RunFailure('ResultTooLarge', `The result is larger than ${MAX_RESULT_BYTES} bytes of JSON`)
  return json
}

/** Of a map or a promise JSON says nothing: undefined. */
export function valueJson(value: unknown): string | undefined {
  const json = resultJson(value)
  return json === '{}' && !isPlain(value) ? undefined : json
}

function tryStringify(value: unknown): string {
  try {
    const json: string | undefined = stringify(value)
    if (json !== undefined) return json
  } catch (error) {
    const fault = findFault(value, 'result', []) ?? errorOf(error).message
    throw new RunFailure('ResultNotSerializable', `The result cannot be written as JSON: ${fault}`)
  }
  throw new RunFailure(
    'ResultNotSerializable',
    `The result cannot be written as JSON: ${typeof value} at result`,
  )
}

function findFault(value: unknown, path: string, parents: object[]): string | undefined {
  if (typeof value === 'bigint') return `BigInt at ${path}`
  if (typeof value !== 'object' || value === null) return undefined
  if (parents.includes(value)) return `${path} contains itself`
  if (parents.length > MAX_DEPTH) return undefined
  for (const [key, item] of Object.entries(value)) {
    const fault = findFault(item, `${path}[${stringify(key).slice(0, 100)}]`, [...parents, value])
    if (fault !== undefined) return fault
  }
  return undefined
}

function textOf(value: unknown): string {
  try {
    return cut(inspect(value, { depth: 4, maxStringLength: MAX_TEXT_BYTES }), MAX_TEXT_BYTES)
  } catch (error) {
    const { name, message } = errorOf(error)
    return `<a value whose inspection threw ${name}: ${message}>`
  }
}

function richParts(value: object): MimeBundle {
  const method: unknown = (value as Record<symbol, unknown>)[DISPLAY_METHOD]
  if (typeof method === 'function') {
    const bundle: unknown = method.call(value)
    if (isMimeBundle(bundle)) return bundleFrom(bundle)
  }
  if (value instanceof Uint8Array) return imagePart(value)
  const json = jsonPart(value)
  return isTable(value) && 'application/json' in json ? { ...json, [TABLE_TYPE]: tableOf(value) } : json
}

function imagePart(bytes: Uint8Array): MimeBundle {
  const type = IMAGES.find(([, start]) => start.every((byte, index) => bytes[index] === byte))?.[0]
  return type === undefined ? {} : { [type]: Buffer.from(bytes).toString('base64') }
}

function jsonPart(value: object): MimeBundle {
  try {
    const json = valueJson(value)
    return json === undefined ? {} : { 'application/json': JSON.parse(json) }
  } catch {
    return {}
  }
}

const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' &&
  value !== null &&
  [Object.prototype, null].includes(Object.getPrototypeOf(value))

const isTable = (value: object): value is Record<string, unknown>[] =>
  Array.isArray(value) && value.length > 0 && value.every(isPlain)

function tableOf(rows: Record<string, unknown>[]) {
  const shown = rows.slice(0, MAX_TABLE_ROWS)
  const columns = [...new Set(shown.flatMap((row) => Object.keys(row)))]
  const cells = shown.map((row) => columns.map((column) => JSON.parse(stringify(row[column]) ?? 'null')))
  return { columns, rows: cells, totalRows: rows.length }
}

function isMimeBundle(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  const keys = Object.keys(value)
  return keys.length > 0 && keys.length <= MAX_BUNDLE_KEYS && keys.every((key) => MEDIA_TYPE.test(key))
}

const bundleFrom = (parts: Record<string, unknown>): MimeBundle =>
  Object.fromEntries(Object.entries(parts).map(([type, data]) => [type, encoded(data)]))

const encoded = (data: unknown) =>
  data instanceof Uint8Array ? Buffer.from(data).toString('base64') : JSON.parse(stringify(data) ?? 'null')
