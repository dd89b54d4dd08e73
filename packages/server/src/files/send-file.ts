import { Readable } from 'node:stream'
import { AshError, STUCK_CLIENT_TIMEOUT_MS } from '@ash-ai/shared'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { FileSource } from './checkpoint-files.ts'
import { matches, parseRange } from './http-conditions.ts'
import { type OpenFile, openFile } from './read-file.ts'

/** A file, or the part of it that is asked for. Throws range_not_satisfiable beside what opening it throws. */
export async function sendFile(
  request: FastifyRequest,
  reply: FastifyReply,
  source: FileSource,
  path: string,
): Promise<FastifyReply> {
  const file = await openFile(source, path)
  try {
    return await sendOpen(request, reply, file, path)
  } catch (error) {
    await file[Symbol.asyncDispose]()
    throw error
  }
}

async function sendOpen(
  { method, headers }: FastifyRequest,
  reply: FastifyReply,
  file: OpenFile,
  path: string,
): Promise<FastifyReply> {
  reply.headers({ etag: file.etag, 'cache-control': 'private, no-cache' })
  if (matches(headers['if-none-match'] ?? '', file.etag)) return sendNothing(reply.code(304), file)
  const isSame = headers['if-range'] === undefined || headers['if-range'] === file.etag
  const range = isSame && method === 'GET' ? parseRange(headers.range, file.size) : undefined
  if (range === 'unsatisfiable') {
    reply.header('content-range', `bytes */${file.size}`)
    throw new AshError('range_not_satisfiable', `"${path}" has ${file.size} bytes`)
  }
  const part = range ?? { start: 0, end: file.size - 1 }
  if (range) reply.code(206).header('content-range', `bytes ${part.start}-${part.end}/${file.size}`)
  reply.headers(describe(file, path, part.end - part.start + 1))
  if (method === 'HEAD') return sendNothing(reply, file, Readable.from([]))
  if (file.size === 0) return sendNothing(reply, file, '')
  reply.raw.setTimeout(STUCK_CLIENT_TIMEOUT_MS, () => reply.raw.destroy())
  return reply.send(file.stream(part))
}

/** Always as a download: a page made by an agent must not run with this server's origin. */
function describe({ modifiedAt }: OpenFile, path: string, length: number): Record<string, string | number> {
  const name = encodeURIComponent(path.slice(path.lastIndexOf('/') + 1))
  return {
    'content-type': 'application/octet-stream',
    'content-length': length,
    'content-disposition': `attachment; filename*=UTF-8''${name}`,
    'last-modified': modifiedAt.toUTCString(),
    'accept-ranges': 'bytes',
    'x-content-type-options': 'nosniff',
  }
}

/** To HEAD a stream without content: of a text Fastify would tell the length. */
async function sendNothing(
  reply: FastifyReply,
  file: OpenFile,
  nothing?: Readable | '',
): Promise<FastifyReply> {
  await file[Symbol.asyncDispose]()
  return reply.send(nothing)
}
