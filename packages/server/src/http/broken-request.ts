import { randomUUID } from 'node:crypto'
import type { Socket } from 'node:net'
import { AshError } from '@ash-ai/shared'
import type { ConnectionError } from 'fastify'
import { toErrorReply } from './error-handler.ts'

/** Answers bytes that are not HTTP, headers beyond the limit and bodies that never end, then hangs up. */
export function refuseBrokenRequest(error: ConnectionError, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const [status, problem] = PROBLEMS[error.code] ?? ['400 Bad Request', 'The request is not valid HTTP']
  const reply = toErrorReply(new AshError('validation_failed', problem), randomUUID())
  const body = JSON.stringify({ ...reply, statusCode: Number.parseInt(status, 10) })
  const head = [
    `HTTP/1.1 ${status}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    'connection: close',
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`)
}

const PROBLEMS: Partial<Record<string, [status: string, problem: string]>> = {
  HPE_HEADER_OVERFLOW: ['431 Request Header Fields Too Large', 'The request headers are too long'],
  ERR_HTTP_REQUEST_TIMEOUT: ['408 Request Timeout', 'The request took too long to arrive'],
}
