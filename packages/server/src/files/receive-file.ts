import { AshError, FileMode, MAX_FILE_BYTES } from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { z } from 'zod'
import type { SessionFiles, Written } from './session-files.ts'
import type { Workspace } from './workspace-folder.ts'
import { type Content, writeFile } from './write-file.ts'

export const WriteQuery = z.object({
  mode: FileMode.optional().describe('Default as the file that is replaced, else `0644`'),
})

/** Everything that a body can be, JSON too, is the bytes of a file in this scope. */
export function takeRawBodies(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', (_request, payload, done) => done(null, payload))
}

/** Writes the body of a request to a file. */
export async function receiveFile(
  files: SessionFiles,
  { headers, body }: Pick<FastifyRequest, 'headers' | 'body'>,
  reply: FastifyReply,
  target: { tenantId: string; sessionId: string; path: string; mode?: string | undefined },
): Promise<Written> {
  const { tenantId, sessionId, path, mode } = target
  const conditions = { ifMatch: headers['if-match'], ifNoneMatch: headers['if-none-match'] }
  const written = await files.change(tenantId, sessionId, async (workspace) => {
    const maxBytes = maxBytesIn(workspace)
    // Refused before it is sent, where it says how long it will be.
    if (Number(headers['content-length'] ?? 0) > maxBytes)
      throw new AshError('payload_too_large', `A file of this session may have at most ${maxBytes} bytes`)
    const bits = mode === undefined ? undefined : Number.parseInt(mode, 8)
    return writeFile(workspace, path, (body ?? []) as Content, { maxBytes, mode: bits, ...conditions })
  })
  reply.header('etag', written.etag)
  return { path, size: written.size }
}

export const maxBytesIn = ({ maxFileBytes = MAX_FILE_BYTES }: Workspace): number => maxFileBytes
