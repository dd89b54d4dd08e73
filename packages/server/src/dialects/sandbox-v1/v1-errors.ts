import { ERRORS, type ErrorCode, type ErrorReply, isErrorCode } from '@ash-ai/shared'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { handleError } from '../../http/error-handler.ts'

/** A failure in the words of the dialect. */
interface V1Error {
  error_code: string
  description: string
  error_detail: string
  solution: string
  request_id: string
}

interface Meaning {
  name: string
  /** Where it differs from ours. */
  status?: number
}

const BUSY: Meaning = { name: 'TooManyRequestsExection', status: 503 }

const BY_CODE: Partial<Record<ErrorCode, Meaning>> = {
  session_not_found: { name: 'SessionNotFound' },
  execution_not_found: { name: 'ExecutionNotFound' },
  template_not_found: { name: 'TemplateNotFound' },
  file_not_found: { name: 'FileNotFound' },
  unauthorized: { name: 'Unauthorized' },
  template_in_use: { name: 'InvalidParameter', status: 400 },
  interpreter_missing: { name: 'InvalidParameter', status: 400 },
  pool_full: BUSY,
  queue_full: BUSY,
  too_many_kernels: BUSY,
  provider_unavailable: { name: 'NotInitialized' },
  server_stopping: { name: 'NotInitialized' },
  setup_failed: { name: 'DependencyInstallError' },
  internal_error: { name: 'InternalError' },
}

const BY_STATUS: Partial<Record<number, string>> = {
  403: 'Forbidden',
  404: 'NotFound',
  405: 'MethodNotAllowed',
  409: 'StateConflict',
  410: 'StateConflict',
}

const CANNOT_BE_READ = 422

/** What only the dialect knows to say. */
export class V1Refusal extends Error {
  readonly status: number
  readonly body: Omit<V1Error, 'request_id'>

  constructor(status: number, body: Omit<V1Error, 'request_id'>) {
    super(body.error_detail)
    this.status = status
    this.body = body
  }
}

/** Translates what the server says about failures. */
export function speakErrors(scope: FastifyInstance): void {
  const unreadable = new WeakSet<FastifyRequest>()
  scope.setErrorHandler((error, request, reply) => {
    if (error instanceof V1Refusal)
      return reply.code(error.status).send({ ...error.body, request_id: request.id })
    if (error instanceof Error && 'validation' in error) unreadable.add(request)
    return handleError(error, request, reply)
  })
  scope.addHook('preSerialization', async (request, reply, payload) => {
    if (!isErrorReply(payload)) return payload
    const { status, body } = toV1Error(payload)
    reply.code(unreadable.has(request) ? CANNOT_BE_READ : status)
    return body
  })
}

const isErrorReply = (payload: unknown): payload is ErrorReply =>
  typeof payload === 'object' && payload !== null && 'requestId' in payload && 'code' in payload
    ? isErrorCode(payload.code)
    : false

export function toV1Error(error: ErrorReply): { status: number; body: V1Error } {
  const { name, status } = BY_CODE[error.code] ?? { name: nameOf(error.statusCode) }
  const [description = '', ...advice] = ERRORS[error.code].summary.split(/(?<=[.;]) /)
  return {
    status: status ?? error.statusCode,
    body: {
      error_code: `Sandbox.${name}`,
      description: description.replace(/;$/, '.'),
      error_detail: error.error,
      solution: advice.join(' ') || solutionOf(error.code),
      request_id: error.requestId,
    },
  }
}

const nameOf = (status: number) => BY_STATUS[status] ?? (status < 500 ? 'InvalidParameter' : 'ExecException')

const solutionOf = (code: ErrorCode) =>
  ERRORS[code].retryable ? 'Send the same request again later.' : 'Change the request as the detail says.'
