import { MAX_LINE_BYTES } from './constants.ts'
import { AshError, type ErrorCode } from './errors.ts'
import { isToolInput } from './tool-input.ts'

const MAX_ERROR_CHARS = 4_000

/**
 * The bridge protocol: one JSON object per line, commands towards the sandbox, events back. Every command has
 * an id and every event names the command it answers. What a bridge sends is hostile input; decoding throws
 * `ProtocolError` and nothing else.
 */
export type BridgeCommand =
  | { cmd: 'preload'; id: string }
  | { cmd: 'configure'; id: string; session: SessionSetup }
  | { cmd: 'query'; id: string; content: unknown; options: Record<string, unknown> }
  | { cmd: 'resume'; id: string; options: Record<string, unknown> }
  | { cmd: 'interrupt'; id: string }
  | { cmd: 'permission'; id: string; requestId: string; decision: PermissionDecision }
  | { cmd: 'exec'; id: string; command: string; timeoutMs: number }
  | { cmd: 'ping'; id: string }
  | { cmd: 'shutdown'; id: string }

/** What makes a sandbox this session's: sent once, before anything else but `preload`. */
export interface SessionSetup {
  sessionId: string
  /** The agent SDK's own id of the conversation, once it is known; resumed if its transcript exists. */
  sdkSessionId?: string
  env: Record<string, string>
  /** Token that the model proxy of this sandbox accepts in place of a key. */
  modelToken: string
}

export type BridgeEvent =
  | { ev: 'ready'; id: string }
  | MessageEvent
  | PermissionRequestEvent
  | { ev: 'permission_withdrawn'; id: string; requestId: string }
  | { ev: 'output'; id: string; stream: 'stdout' | 'stderr'; data: string }
  | { ev: 'log'; id: string; level: string; text: string }
  | TerminalEvent

/** An SDK message. `json` is the text as the bridge wrote it, one valid JSON object without a line break. */
export interface MessageEvent {
  ev: 'message'
  id: string
  type: string
  /** The SDK's id of the conversation, which most messages carry. */
  sdkSessionId?: string
  json: string
}

/** The agent asks and waits. `requestId` is the bridge's own and means something to this bridge only. */
export interface PermissionRequestEvent {
  ev: 'permission_request'
  id: string
  requestId: string
  kind: 'permission' | 'question'
  tool: string
  input: Record<string, unknown>
  toolUseId?: string
  reason?: string
}

/** What the agent is told. */
export type PermissionDecision =
  | { behavior: 'allow'; updatedInput?: Record<string, unknown> }
  | { behavior: 'deny'; message: string; interrupt?: boolean }

/** Exactly one of these ends each command. */
export type TerminalEvent =
  | { ev: 'done'; id: string; data: TurnDone }
  | { ev: 'result'; id: string; data: unknown }
  | { ev: 'pong'; id: string }
  | { ev: 'error'; id: string; code: string; error: string }

export interface TurnDone {
  stopReason: string
  usage?: unknown
  /** Options that could not be changed on the live query, so that it was opened anew. */
  reopened?: string[]
}

export interface ExecResult {
  exitCode: number | null
  signal: string | null
  stdout: string
  stderr: string
  truncated: boolean
  timedOut: boolean
}

/** What may go wrong inside a sandbox. A bridge is hostile: no other code of the error table is believed from it. */
const BRIDGE_ERROR_CODES = [
  'agent_crashed',
  'agent_failed',
  'model_api_error',
  'turn_in_progress',
] as const satisfies ErrorCode[]

/** An `error` event as the error it stands for. */
export function bridgeError({ code, error }: Extract<BridgeEvent, { ev: 'error' }>): AshError {
  const known = BRIDGE_ERROR_CODES.find((candidate) => candidate === code)
  return new AshError(known ?? 'agent_failed', error.slice(0, MAX_ERROR_CHARS))
}

/** The command id of SDK messages that come between turns. */
export const UNSOLICITED = 'session'

export class ProtocolError extends Error {
  override readonly name = 'ProtocolError'
}

export function encodeLine(value: BridgeCommand | Exclude<BridgeEvent, MessageEvent>): string {
  return `${JSON.stringify(value)}\n`
}

export function encodeMessage(id: string, message: unknown): string {
  return `{"ev":"message","id":"${id}","data":${JSON.stringify(message)}}\n`
}

const COMMANDS: ReadonlySet<string> = new Set<BridgeCommand['cmd']>([
  'preload',
  'configure',
  'query',
  'resume',
  'interrupt',
  'permission',
  'exec',
  'ping',
  'shutdown',
])

export function decodeCommand(line: string): BridgeCommand {
  const value = parseObject(line)
  if (typeof value.cmd !== 'string' || !COMMANDS.has(value.cmd)) throw new ProtocolError('unknown command')
  if (!isId(value.id)) throw new ProtocolError('a command needs an id')
  return value as unknown as BridgeCommand
}

const ID = /^[A-Za-z0-9_-]{1,64}$/
const MESSAGE_HEAD = /^\{"ev":"message","id":"([A-Za-z0-9_-]{1,64})","data":/

export function decodeEvent(line: string): BridgeEvent {
  // A carriage return is whitespace to JSON but ends a line in an SSE frame.
  if (line.includes('\r')) throw new ProtocolError('carriage return in an event')
  const head = MESSAGE_HEAD.exec(line)
  return head?.[1] === undefined
    ? decodePlainEvent(line)
    : decodeMessage(head[1], line.slice(head[0].length, -1), line)
}

/** The message text itself is parsed, not the line: what is checked is exactly what is stored and sent. */
function decodeMessage(id: string, json: string, line: string): MessageEvent {
  if (!line.endsWith('}')) throw new ProtocolError('unfinished message event')
  const { type, session_id: sdkSessionId } = parseObject(json)
  if (typeof type !== 'string') throw new ProtocolError('a message without a type')
  return { ev: 'message', id, type, json, ...(isUuid(sdkSessionId) && { sdkSessionId }) }
}

function decodePlainEvent(line: string): BridgeEvent {
  const event = parseObject(line)
  if (!isId(event.id)) throw new ProtocolError('an event needs the id of its command')
  if (!isPlainEvent(event)) throw new ProtocolError('unknown or malformed event')
  return event as unknown as BridgeEvent
}

function isPlainEvent(event: Record<string, unknown>): boolean {
  const isText = (...keys: string[]) => keys.every((key) => typeof event[key] === 'string')
  switch (event.ev) {
    case 'ready':
    case 'pong':
      return true
    case 'output':
      return isText('data') && (event.stream === 'stdout' || event.stream === 'stderr')
    case 'log':
      return isText('level', 'text')
    case 'error':
      return isText('code', 'error')
    case 'result':
      return 'data' in event
    case 'done':
      return isTurnDone(event.data)
    case 'permission_request':
      return isPermissionRequest(event)
    case 'permission_withdrawn':
      return isId(event.requestId)
    default:
      return false
  }
}

function isTurnDone(data: unknown): boolean {
  if (typeof data !== 'object' || data === null) return false
  const { stopReason, reopened } = data as Record<string, unknown>
  return (
    typeof stopReason === 'string' &&
    (reopened === undefined ||
      (Array.isArray(reopened) && reopened.every((name) => typeof name === 'string')))
  )
}

const MAX_TOOL_NAME_CHARS = 200
const MAX_REASON_CHARS = 4_000

function isPermissionRequest({ requestId, kind, tool, input, toolUseId, reason }: Record<string, unknown>) {
  const isText = (value: unknown, max: number) => typeof value === 'string' && value.length <= max
  return (
    isId(requestId) &&
    (kind === 'permission' || kind === 'question') &&
    isText(tool, MAX_TOOL_NAME_CHARS) &&
    isToolInput(input) &&
    (toolUseId === undefined || isText(toolUseId, MAX_TOOL_NAME_CHARS)) &&
    (reason === undefined || isText(reason, MAX_REASON_CHARS))
  )
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
const isUuid = (id: unknown): id is string => typeof id === 'string' && (id === lastUuid || testUuid(id))

/** Nearly every message of a session names the same one. */
let lastUuid = ''
function testUuid(id: string): boolean {
  if (!UUID.test(id)) return false
  lastUuid = id
  return true
}
const isId = (id: unknown) => typeof id === 'string' && ID.test(id)

/** A longer line is looked at before it is parsed: text is cheap, but many small values cost seconds and gigabytes. */
const LARGE_CHARS = 1024 * 1024
const MAX_VALUES_OF_LARGE = 250_000

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

function parseObject(text: string): Record<string, unknown> {
  if (text.length > LARGE_CHARS) assertFewValues(text)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new ProtocolError('a line is not JSON')
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ProtocolError('a line is not a JSON object')
  }
  return value as Record<string, unknown>
}

const NEWLINE = 10
/** Most unfinished lines are shorter; room for a longer one is given up after it. */
const KEPT_BYTES = 64 * 1024

/** Cuts a byte stream into lines of valid UTF-8, holding at most one unfinished line of bounded length. */
export class LineSplitter {
  readonly #maxBytes: number
  readonly #decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  /** The beginning of a line, and room for more. */
  #kept = new Uint8Array(0)
  #size = 0

  constructor(maxBytes: number = MAX_LINE_BYTES) {
    this.#maxBytes = maxBytes
  }

  /** The lines that this chunk completes. */
  *push(chunk: Uint8Array): Generator<string> {
    const first = chunk.indexOf(NEWLINE)
    if (first < 0) return this.#keep(chunk)
    const line = this.#take(chunk.subarray(0, first))
    if (line !== '') yield line
    const last = chunk.lastIndexOf(NEWLINE)
    if (last > first) yield* this.#splitWhole(chunk.subarray(first + 1, last))
    if (last + 1 < chunk.length) this.#keep(chunk.subarray(last + 1))
  }

  /** Most chunks hold many lines: to decode them together costs a fraction of decoding each. */
  *#splitWhole(bytes: Uint8Array): Generator<string> {
    for (const line of this.#decodeWhole(bytes)) if (line !== '') yield line
  }

  #decodeWhole(bytes: Uint8Array): Iterable<string> {
    try {
      return this.#decode(bytes).split('\n')
    } catch {
      // What comes before the line that is broken still counts.
      return this.#decodeEach(bytes)
    }
  }

  *#decodeEach(bytes: Uint8Array): Generator<string> {
    for (let start = 0; start <= bytes.length; ) {
      const newline = bytes.indexOf(NEWLINE, start)
      const end = newline < 0 ? bytes.length : newline
      yield this.#decode(bytes.subarray(start, end))
      start = end + 1
    }
  }

  /** Copied: a line that comes byte by byte would otherwise cost hundreds of times its length. */
  #keep(part: Uint8Array): void {
    const size = this.#size + part.length
    if (size > this.#maxBytes) throw new ProtocolError(`a line is longer than ${this.#maxBytes} bytes`)
    if (size > this.#kept.length) this.#kept = grown(this.#kept, size)
    this.#kept.set(part, this.#size)
    this.#size = size
  }

  #take(last: Uint8Array): string {
    if (this.#size === 0 && last.length <= this.#maxBytes) return this.#decode(last)
    this.#keep(last)
    const line = this.#decode(this.#kept.subarray(0, this.#size))
    this.#size = 0
    if (this.#kept.length > KEPT_BYTES) this.#kept = new Uint8Array(0)
    return line
  }

  #decode(bytes: Uint8Array): string {
    try {
      return this.#decoder.decode(bytes)
    } catch {
      throw new ProtocolError('a line is not UTF-8')
    }
  }
}

/** Twice as large, so that all the copying together stays below twice the length of the line. */
function grown(bytes: Uint8Array, size: number): Uint8Array<ArrayBuffer> {
  const larger = new Uint8Array(Math.max(size, 2 * bytes.length))
  larger.set(bytes)
  return larger
}
