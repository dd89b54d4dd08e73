import type { OutgoingHttpHeaders, ServerResponse } from 'node:http'

const ERROR_TYPES = new Map([
  [400, 'invalid_request_error'],
  [401, 'authentication_error'],
  [403, 'permission_error'],
  [404, 'not_found_error'],
  [413, 'request_too_large'],
  [429, 'rate_limit_error'],
  [504, 'timeout_error'],
  [529, 'overloaded_error'],
])

export type ApiError = { status: number; message: string; type?: string; headers?: Record<string, string> }

export function sendJson(
  response: ServerResponse,
  status: number,
  value: unknown,
  headers: OutgoingHttpHeaders = {},
): void {
  const data = Buffer.from(JSON.stringify(value))
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': data.length,
    ...headers,
  })
  response.end(data)
}

export function sendError(response: ServerResponse, requestId: string, error: ApiError): void {
  const { status, message, type = errorType(status), headers = {} } = error
  const body = { type: 'error', error: { type, message }, request_id: requestId }
  sendJson(response, status, body, { 'request-id': requestId, ...headers })
}

function errorType(status: number): string {
  return ERROR_TYPES.get(status) ?? (status < 500 ? 'invalid_request_error' : 'api_error')
}
