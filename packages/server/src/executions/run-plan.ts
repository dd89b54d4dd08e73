import {
  AshError,
  DEFAULT_RUN_TIMEOUT_MS,
  type ExecuteRequest,
  type HandlerContext,
  type Language,
  MAX_RUN_TIMEOUT_MS,
  type SessionMode,
} from '@ash-ai/shared'
import { validationError } from '../http/validation-error.ts'
import type { ExecutionRow } from './execution-queries.ts'

const MAX_EVENT_BYTES = 10 * 1024 * 1024
const DEFAULT_KERNEL = 'default'

/** What a session says about runs in it. */
export interface RunSession {
  mode: SessionMode
  languages: readonly Language[]
  timeoutMs: number
}

/** What of a run is secret, and needed until it is over. */
export interface RunInput {
  /** JSON text. */
  event?: string
  context?: Record<string, unknown>
  env?: Record<string, string>
}

/** What is to be run, and how. */
export interface RunPlan {
  input: RunInput
  what: Pick<ExecutionRow, 'kind' | 'language' | 'kernel' | 'code' | 'timeout_ms' | 'retries'>
}

/** The event as JSON text, made once: it may be large. Throws where it is too large. */
export function eventText({ event }: Pick<ExecuteRequest, 'event'>): string | undefined {
  const text = event === undefined ? undefined : JSON.stringify(event)
  if (text !== undefined && Buffer.byteLength(text) > MAX_EVENT_BYTES)
    throw new AshError('payload_too_large', `The event may have at most ${MAX_EVENT_BYTES} bytes as JSON`)
  return text
}

/** Throws where the session cannot run that. `event` is that of the request, as text. */
export function planRun(
  request: ExecuteRequest,
  session: RunSession,
  event: string | undefined = eventText(request),
): RunPlan {
  const { handler, code = handler ?? '', context, env } = request
  // No database takes it, and no language does.
  if (code.includes('\0')) throw refuse(handler === undefined ? 'code' : 'handler', 'must not contain NUL')
  const language = chooseLanguage(request, session)
  const kind = chooseKind(request, language, session)
  if (handler !== undefined && language === 'shell')
    throw refuse('handler', 'must be Python or JavaScript; a shell runs `code`')
  return {
    input: {
      ...(event !== undefined && { event }),
      ...(context && { context }),
      ...(env && { env }),
    },
    what: {
      kind,
      language,
      kernel: kind === 'code' ? (request.kernel ?? DEFAULT_KERNEL) : null,
      code,
      timeout_ms: chooseTimeout(request, session),
      retries: (request.retry ?? kind !== 'code') ? 1 : 0,
    },
  }
}

function chooseLanguage({ language }: ExecuteRequest, { languages }: RunSession): Language {
  const [first] = languages
  const chosen = language ?? first
  if (chosen !== undefined && languages.includes(chosen)) return chosen
  throw new AshError(
    'interpreter_missing',
    `The session cannot run ${chosen ?? 'code'}; it has ${languages.join(', ') || 'no language'}`,
  )
}

function chooseKind(
  { handler, fresh = false, kernel }: ExecuteRequest,
  language: Language,
  { mode }: RunSession,
): ExecutionRow['kind'] {
  const isKept = handler === undefined && mode === 'persistent' && !fresh && language !== 'shell'
  if (kernel !== undefined && !isKept)
    throw refuse('kernel', 'is for Python and JavaScript code of a persistent session, without `fresh`')
  if (handler !== undefined) return 'handler'
  return isKept ? 'code' : 'script'
}

/** Of the time-outs that the request names, the smallest. */
function chooseTimeout({ timeout, handler, event }: ExecuteRequest, { timeoutMs }: RunSession): number {
  const inEvent = handler !== undefined && event && '__timeout' in event ? eventTimeout(event.__timeout) : []
  const named = [...inEvent, ...(timeout === undefined ? [] : [timeout])]
  return named.length > 0 ? Math.min(...named) : timeoutMs
}

/** Seconds. What is no time at all means the default, and more than the maximum the maximum. */
function eventTimeout(seconds: unknown): number[] {
  if (typeof seconds !== 'number' || !(seconds > 0)) return [DEFAULT_RUN_TIMEOUT_MS]
  return [Math.min(Math.max(1, Math.round(seconds * 1000)), MAX_RUN_TIMEOUT_MS)]
}

const refuse = (path: string, message: string) => validationError([{ path, message }])

const DEFAULT_FUNCTION = 'unknown-function'

/** What a handler is told about its run: what the caller said, over what is the case. */
export function handlerContext(
  { id, session_id }: Pick<ExecutionRow, 'id' | 'session_id'>,
  given: Record<string, unknown> = {},
  memoryLimitMb: number,
): HandlerContext {
  const { rest, take } = fields(given)
  const functionName = take('function_name', DEFAULT_FUNCTION)
  const context = {
    functionName,
    functionVersion: take('function_version', '$LATEST'),
    requestId: take('request_id', id),
    logGroupName: take('log_group_name', `/ash/${functionName}`),
    logStreamName: take('log_stream_name', session_id),
    memoryLimitMb: take('memory_limit_in_mb', memoryLimitMb),
    invokedFunctionArn: take('invoked_function_arn', `arn:ash:function:${functionName}`),
  }
  return Object.keys(rest).length > 0 ? { ...context, custom: rest } : context
}

/** Known names are taken out where their value has the right type; whatever else remains is the caller's own. */
function fields(given: Record<string, unknown>) {
  const rest = { ...given }
  const take = <Value extends string | number>(name: string, byDefault: Value): Value => {
    const value = rest[name]
    if (typeof value !== typeof byDefault) return byDefault
    delete rest[name]
    return value as Value
  }
  return { rest, take }
}
