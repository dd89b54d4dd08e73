import { isRecord } from './messages-request.ts'
import type { Step } from './script.ts'

/** Checks a step that came as JSON. Throws an Error naming the field; a misspelt fault must not pass as a reply. */
export function parseStep(value: unknown): Step {
  if (!isRecord(value)) throw new Error('a step is a JSON object')
  for (const [field, content] of Object.entries(value)) {
    if (!isField(field)) throw new Error(`a step has no field "${field}"`)
    if (!FIELDS[field](content)) throw new Error(`the step's "${field}" has a wrong value`)
  }
  return value as Step
}

type Check = (value: unknown) => boolean

const text: Check = (value) => typeof value === 'string'
const count: Check = (value) => Number.isInteger(value) && Number(value) >= 0
const positive: Check = (value) => count(value) && value !== 0
const oneOf =
  (...words: string[]): Check =>
  (value) =>
    words.some((word) => word === value)
const listOf =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(check)
const fields =
  (checks: Record<string, Check>): Check =>
  (value) =>
    isRecord(value) && Object.entries(value).every(([name, content]) => checks[name]?.(content) === true)

// An HTTP status that carries a body: node refuses to write others, which would look like a crash of this server.
const status: Check = (value) => count(value) && Number(value) >= 400 && Number(value) <= 599
const headers: Check = (value) => isRecord(value) && Object.values(value).every(text)
const error = fields({ status, type: text, message: text, headers })
const streamError = fields({ type: text, message: text })
const usage: Check = (value) => isRecord(value) && Object.values(value).every(count)
const toolCall = fields({ tool: text, input: isRecord, id: text })

const FIELDS: Record<keyof Step, Check> = {
  text,
  thinking: text,
  tool: text,
  input: isRecord,
  tools: listOf((call) => toolCall(call) && isRecord(call) && text(call.tool)),
  content: listOf((block) => isRecord(block) && text(block.type)),
  rawInput: text,
  stopReason: text,
  usage,
  delayMs: count,
  firstTokenMs: count,
  chunkDelayMs: count,
  chunkSize: positive,
  error: (value) => status(value) || error(value),
  disconnect: oneOf('before', 'mid'),
  hang: oneOf('headers', 'mid'),
  streamError: (value) => value === true || streamError(value),
  malformed: oneOf('html', 'event', 'json'),
  afterDeltas: count,
  repeat: positive,
}

function isField(name: string): name is keyof Step {
  return Object.hasOwn(FIELDS, name)
}
