import { AshError, ERRORS, type ErrorCode, type ErrorDetail, type ErrorReply } from '@ash-ai/shared'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { validationError } from './validation-error.ts'

/** The one place where a failure becomes a reply. */
export function handleError(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const known = toAshError(error)
  if (known.code === 'internal_error')
    request.log.error({ requestId: request.id, err: error }, 'request failed')
  if (reply.raw.headersSent) {
    // A stream that breaks half way: the client must not take what it has for the whole.
    reply.raw.destroy()
    return
  }
  if (known.retryAfterSeconds !== undefined) reply.header('retry-after', Math.ceil(known.retryAfterSeconds))
  reply
    .code(known.statusCode)
    .type('application/json; charset=utf-8')
    .serializer(JSON.stringify)
    .send(toErrorReply(known, request.id))
}

export function toErrorReply(error: AshError, requestId: string): ErrorReply {
  return {
    error: error.message,
    code: error.code,
    statusCode: error.statusCode,
    requestId,
    ...(error.details && { details: error.details }),
  }
}

function toAshError(error: unknown): AshError {
  if (error instanceof AshError) return error.code === 'internal_error' ? internalError() : error
  if (isFastifyError(error)) return fromFastify(error)
  return internalError()
}

/** What went wrong stays in the log: a message may quote a query, a path or a key. */
const internalError = () => new AshError('internal_error', ERRORS.internal_error.summary)

const isFastifyError = (error: unknown): error is FastifyError =>
  error instanceof Error && 'statusCode' in error

/** By Fastify's code where one of ours fits better than the status alone. */
const BY_CODE: Partial<Record<string, [ErrorCode, string]>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: ['payload_too_large', 'The request body is larger than this route allows'],
  FST_ERR_CTP_INVALID_JSON_BODY: ['validation_failed', 'The request body is not valid JSON'],
  FST_ERR_CTP_EMPTY_JSON_BODY: ['validation_failed', 'The request body is empty; JSON is needed'],
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: ['validation_failed', 'The body is not as long as Content-Length says'],
  FST_ERR_BAD_URL: ['validation_failed', 'The URL holds a malformed percent encoding'],
  FST_ERR_MAX_PARAM_LENGTH: ['validation_failed', 'A part of the URL is too long'],
}

const BY_STATUS: Partial<Record<number, ErrorCode>> = {
  404: 'route_not_found',
  405: 'method_not_allowed',
  413: 'payload_too_large',
  414: 'validation_failed',
  415: 'unsupported_media_type',
}

function fromFastify(error: FastifyError): AshError {
  if (error.validation) return validationError(validationDetails(error))
  const [code, message] = BY_CODE[error.code] ?? []
  if (code !== undefined && message !== undefined) return new AshError(code, message)
  const status = error.statusCode ?? 500
  const byStatus = BY_STATUS[status]
  if (byStatus) return new AshError(byStatus, ERRORS[byStatus].summary)
  // The remaining client errors are about the shape of the request, such as a forbidden `__proto__` key.
  return status >= 400 && status < 500 ? new AshError('validation_failed', error.message) : internalError()
}

/** `instancePath` is `/files/0/path`. A missing body has no path, so the part of the request is named. */
function validationDetails(error: FastifyError): ErrorDetail[] {
  return (error.validation ?? []).map(({ instancePath, message }) => ({
    path: instancePath.split('/').filter(Boolean).join('.') || (error.validationContext ?? ''),
    message: message ?? 'is invalid',
  }))
}
