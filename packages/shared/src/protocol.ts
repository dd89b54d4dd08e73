import { MAX_TERMINAL_SIDE } from './constants.ts'
import { AshError, type ErrorCode } from './errors.ts'
import { LANGUAGES, type Language, type RunOutcome, type RunRequest } from './interpreter.ts'
import { ProtocolError } from './line-splitter.ts'
import { isToolInput } from './tool-input.ts'

const MAX_ERROR_CHARS = 4_000

/**
 * The bridge protocol: one JSON object per line, commands towards the sandbox, events back. Every command has
 * an id and every event names the command it answers. What a bridge sends is hostile input; decoding throws
 * `ProtocolError` and nothing else.
 */
export type BridgeCommand =
  | { cmd: 'preload'; id: string; interpreter?: { language: Language; env: Record<string, string> } }
  | { cmd: 'configure'; id: string; session: SessionSetup }
  | { cmd: 'query'; id: string; content: unknown; options: Record<string, unknown> }
  | { cmd: 'resume'; id: string; options: Record<string, unknown> }
  | { cmd: 'interrupt'; id: string }
  | { cmd: 'permission'; id: string; requestId: string; decision: PermissionDecision }
  | { cmd: 'exec'; id: string; command: string; timeoutMs: number }
  | { cmd: 'start'; id: string; language: Language; env?: Record<string, string> }
  | { cmd: 'execute'; id: string; interpreter: string; request: RunRequest; maxOutputBytes: number }
  | { cmd: 'cancel'; id: string; interpreter: string; how: 'interrupt' | 'kill' }
  | { cmd: 'stop'; id: string; interpreter: string }
  | { cmd: 'ports'; id: string }
  | { cmd: 'tunnel'; id: string; port: number; token: string }
  | ({ cmd: 'terminal'; id: string; command?: string } & TerminalSize)
  | { cmd: 'terminal_read'; id: string; terminal: string }
  | { cmd: 'terminal_input'; id: string; terminal: string; data: string }
  | ({ cmd: 'terminal_resize'; id: string; terminal: string } & TerminalSize)
  | { cmd: 'terminal_close'; id: string; terminal: string }
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

/** What `start` gives. */
export interface StartResult {
  interpreter: string
  /** As the processes inside see it. */
  pid: number
}

/** What `execute` gives, once its results have come as output. */
export type ExecuteResult = Omit<RunOutcome, 'result' | 'results'>

/** What `tunnel` gives: whether anything was there to connect to. If so, the bytes go by a socket of their own. */
export interface TunnelResult {
  connected: boolean
}

/** In hexadecimal, a line of its own: the first that the bridge sends through a tunnel. */
export const TUNNEL_TOKEN_BYTES = 32

export interface TerminalSize {
  cols: number
  rows: number
}

/** What `terminal` gives. */
export interface TerminalStart {
  terminal: string
  /** As the processes inside see it. */
  pid: number
}

export interface TerminalExit {
  code: number | null
  signal: number | null
}

/** What `terminal_read` gives: output in base64 once there is some, and after the last of it how the program ended. */
export type TerminalRead = { data: string } | { exit: TerminalExit }

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

const COMMANDS: ReadonlySet<string> = new Set<BridgeCommand['cmd']>([
  'preload',
  'configure',
  'query',
  'resume',
  'interrupt',
  'permission',
  'exec',
  'start',
  'execute',
  'cancel',
  'stop',
  'ports',
  'tunnel',
  'terminal',
  'terminal_read',
  'terminal_input',
  'terminal_resize',
  'terminal_close',
  'ping',
  'shutdown',
])

export function decodeCommand(line: string): BridgeCommand {
  const value = parseObject(line)
  if (typeof value.cmd !== 'string' || !COMMANDS.has(value.cmd)) throw new ProtocolError('unknown command')
  if (!isId(value.id)) throw new ProtocolError('a command needs an id')
  if (!isWholeCommand(value) || !isWholeTerminalCommand(value))
    throw new ProtocolError(`a malformed command: ${value.cmd}`)
  return value as unknown as BridgeCommand
}

function isWholeCommand({
  cmd,
  language,
  interpreter,
  request,
  how,
  env,
  maxOutputBytes,
  port,
  token,
}: Record<string, unknown>) {
  switch (cmd) {
    case 'start':
      return LANGUAGES.some((known) => known === language) && (env === undefined || isEnv(env))
    case 'execute':
      return isId(interpreter) && isRunRequest(request) && isAmount(maxOutputBytes)
    case 'cancel':
      return isId(interpreter) && (how === 'interrupt' || how === 'kill')
    case 'stop':
      return isId(interpreter)
    case 'tunnel':
      return isPort(port) && typeof token === 'string' && TUNNEL_TOKEN.test(token)
    default:
      return true
  }
}

function isWholeTerminalCommand({ cmd, terminal, cols, rows, command, data }: Record<string, unknown>) {
  switch (cmd) {
    case 'terminal':
      return isTerminalSize(cols, rows) && (command === undefined || typeof command === 'string')
    case 'terminal_resize':
      return isId(terminal) && isTerminalSize(cols, rows)
    case 'terminal_input':
      return isId(terminal) && typeof data === 'string'
    case 'terminal_read':
    case 'terminal_close':
      return isId(terminal)
    default:
      return true
  }
}

const isTerminalSize = (...sides: unknown[]) =>
  sides.every(
    (side) => Number.isInteger(side) && (side as number) > 0 && (side as number) <= MAX_TERMINAL_SIDE,
  )

function isRunRequest(request: unknown): boolean {
  if (!isObject(request)) return false
  const { kind, code, event, env, timeoutMs } = request
  return (
    (kind === 'code' || kind === 'script' || kind === 'handler') &&
    typeof code === 'string' &&
    (event === undefined || typeof event === 'string') &&
    (env === undefined || isEnv(env)) &&
    isAmount(timeoutMs)
  )
}

const TUNNEL_TOKEN = new RegExp(`^[0-9a-f]{${2 * TUNNEL_TOKEN_BYTES}}$`)
const isPort = (port: unknown) =>
  Number.isInteger(port) && (port as number) >= 1 && (port as number) <= 65_535
const isAmount = (value: unknown) => Number.isFinite(value) && (value as number) >= 0
const isEnv = (env: unknown) =>
  isObject(env) && Object.values(env).every((value) => typeof value === 'string')
const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

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
