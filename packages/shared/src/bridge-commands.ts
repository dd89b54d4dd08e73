import { MAX_TERMINAL_SIDE } from './constants.ts'
import { LANGUAGES, type Language, type RunOutcome, type RunRequest } from './interpreter.ts'
import { isObject, parseObject } from './json-object.ts'
import { ProtocolError } from './line-splitter.ts'

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

/** What the agent is told. */
export type PermissionDecision =
  | { behavior: 'allow'; updatedInput?: Record<string, unknown> }
  | { behavior: 'deny'; message: string; interrupt?: boolean }

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
const ID = /^[A-Za-z0-9_-]{1,64}$/
/** Of commands, and of what lives inside. */
export const isId = (id: unknown) => typeof id === 'string' && ID.test(id)
