import { type BridgeCommand, isId } from './bridge-commands.ts'
import { AshError, type ErrorCode } from './errors.ts'
import { parseObject } from './json-object.ts'
import { ProtocolError } from './line-splitter.ts'
import { isToolInput } from './tool-input.ts'

const MAX_ERROR_CHARS = 4_000

export type BridgeEvent =
  | { ev: 'ready'; id: string }
  | MessageEvent
  | PermissionRequestEvent
  | { ev: 'permission_withdrawn'; id: string; requestId: string }
  | { ev: 'output'; id: string; stream: OutputStream; data: string }
  | { ev: 'log'; id: string; level: string; text: string }
  | TerminalEvent

const OUTPUT_STREAMS = ['stdout', 'stderr', 'result', 'display'] as const
/** Beside the output itself: a piece of the result's JSON text, and a rich result as an interpreter writes it. */
export type OutputStream = (typeof OUTPUT_STREAMS)[number]

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

/** What may go wrong inside a sandbox. A bridge is hostile: no other code of the error table is believed from it. */
const BRIDGE_ERROR_CODES = [
  'agent_crashed',
  'agent_failed',
  'interpreter_gone',
  'interpreter_missing',
  'model_api_error',
  'terminal_not_found',
  'terminals_unavailable',
  'too_many_kernels',
  'too_many_terminals',
  'turn_in_progress',
] as const satisfies ErrorCode[]

/** An `error` event as the error it stands for. */
export function bridgeError({ code, error }: Extract<BridgeEvent, { ev: 'error' }>): AshError {
  const known = BRIDGE_ERROR_CODES.find((candidate) => candidate === code)
  return new AshError(known ?? 'agent_failed', error.slice(0, MAX_ERROR_CHARS))
}

/** The command id of SDK messages that come between turns. */
export const UNSOLICITED = 'session'

export function encodeLine(value: BridgeCommand | Exclude<BridgeEvent, MessageEvent>): string {
  return `${JSON.stringify(value)}\n`
}

export function encodeMessage(id: string, message: unknown): string {
  return `{"ev":"message","id":"${id}","data":${JSON.stringify(message)}}\n`
}

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
      return isText('data') && OUTPUT_STREAMS.some((stream) => stream === event.stream)
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
