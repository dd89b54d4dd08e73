import { AshError, type ErrorCode, type ErrorDetail, isErrorCode } from '@ash-ai/shared'

/** An error the server reported with a code of the table, plus what identifies it in the server's log. */
export class AshApiError extends AshError {
  readonly requestId: string | undefined

  constructor(
    code: ErrorCode,
    message: string,
    options: { details?: ErrorDetail[]; retryAfterSeconds?: number; requestId?: string } = {},
  ) {
    super(code, message, options)
    this.name = 'AshApiError'
    this.requestId = options.requestId
  }
}

/**
 * Why there is no (whole) reply. `refused`: nothing was sent, so any request may be repeated. `lost`: the
 * connection broke and the server may have acted. `timeout`: the time allowed passed.
 */
export type ConnectionFailure = 'refused' | 'lost' | 'timeout'

export class AshConnectionError extends Error {
  override readonly name = 'AshConnectionError'
  readonly reason: ConnectionFailure

  constructor(reason: ConnectionFailure, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.reason = reason
  }
}

/** A reply that is not Ash's: a proxy's page, another program on the port, or a code of a newer server. */
export class AshReplyError extends Error {
  override readonly name = 'AshReplyError'
  /** The HTTP status, or undefined when the fault lies inside a stream. */
  readonly status: number | undefined
  readonly code: string | undefined
  readonly requestId: string | undefined
  readonly retryAfterSeconds: number | undefined

  constructor(
    message: string,
    options: { status?: number; code?: string; requestId?: string; retryAfterSeconds?: number } = {},
  ) {
    super(message)
    this.status = options.status
    this.code = options.code
    this.requestId = options.requestId
    this.retryAfterSeconds = options.retryAfterSeconds
  }
}

const NEVER_CONNECTED: ReadonlySet<unknown> = new Set([
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
])

/** What `fetch` or the reading of a body threw. A browser does not say why, which counts as `lost`. */
export function toConnectionError(error: unknown, url: string): AshConnectionError {
  if (error instanceof AshConnectionError) return error
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error
  const code = codeOf(cause)
  const origin = new URL(url).origin
  if (NEVER_CONNECTED.has(code)) {
    return new AshConnectionError('refused', `Cannot reach ${origin} (${code})`, error)
  }
  const text = code ?? (cause instanceof Error ? cause.message : String(cause))
  return new AshConnectionError('lost', `The connection to ${origin} broke (${text})`, error)
}

function codeOf(error: unknown): string | undefined {
  const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined
  return typeof code === 'string' ? code : undefined
}

const MAX_EXCERPT_CHARS = 200

/** The error for a reply whose status is not 2xx. */
export function toReplyError(status: number, headers: Headers, body: string): AshError | AshReplyError {
  const reply = parseObject(body)
  const retryAfterSeconds = parseRetryAfter(headers.get('retry-after'))
  const requestId = typeof reply?.requestId === 'string' ? reply.requestId : headers.get('x-request-id')
  const facts = {
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
    ...(requestId !== null && { requestId }),
  }
  const message = typeof reply?.error === 'string' ? reply.error : undefined
  if (isErrorCode(reply?.code)) {
    const details = toDetails(reply.details)
    return new AshApiError(reply.code, message ?? `HTTP ${status}`, { ...facts, ...(details && { details }) })
  }
  const excerpt = body.replace(/\s+/g, ' ').trim().slice(0, MAX_EXCERPT_CHARS)
  return new AshReplyError(
    message ?? `HTTP ${status}${excerpt === '' ? ' with an empty body' : `: ${excerpt}`}`,
    {
      ...facts,
      status,
      ...(typeof reply?.code === 'string' && { code: reply.code }),
    },
  )
}

/** The error that a turn's terminal `error` event stands for. */
export function toTurnError(data: { code: string; error: string }): AshError | AshReplyError {
  return isErrorCode(data.code)
    ? new AshError(data.code, data.error)
    : new AshReplyError(data.error, { code: data.code })
}

function toDetails(details: unknown): ErrorDetail[] | undefined {
  return Array.isArray(details) ? details.filter(isDetail) : undefined
}

function isDetail(detail: unknown): detail is ErrorDetail {
  const { path, message } = Object(detail) as Record<string, unknown>
  return typeof path === 'string' && typeof message === 'string'
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined
  } catch {
    return undefined
  }
}

/** Seconds or an HTTP date. */
function parseRetryAfter(header: string | null): number | undefined {
  if (header === null) return undefined
  const seconds = /^\d+$/.test(header.trim()) ? Number(header) : (Date.parse(header) - Date.now()) / 1000
  return Number.isFinite(seconds) ? Math.max(0, seconds) : undefined
}
