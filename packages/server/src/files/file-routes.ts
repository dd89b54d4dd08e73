import {
  AshError,
  FileEntry,
  FileList,
  FilesWrite,
  FileText,
  MAX_FILE_BYTES,
  SessionId,
} from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { deleteFile } from './delete-file.ts'
import { listFiles } from './list-files.ts'
import { openFile, readText } from './read-file.ts'
import type { Workspace } from './workspace-folder.ts'
import { checkWritable, writeFile } from './write-file.ts'

/** The folder of a session of this tenant; throws session_not_found and the like. */
export type GetWorkspace = (
  tenantId: string,
  sessionId: string,
  access: 'read' | 'write',
) => Promise<Workspace>

const MAX_TEXT_BYTES = 1024 * 1024

const OfSession = z.object({ id: SessionId })
const OfFile = z.object({ id: SessionId, '*': z.string().describe('Path in the workspace') })
const ReadQuery = z.object({ format: z.enum(['raw', 'json']).default('raw') })
const Written = z.object({ path: z.string(), size: z.number().int() })
const Ok = z.object({ ok: z.literal(true) })
const tags = ['files']

export function registerFileRoutes(app: FastifyInstance, getWorkspace: GetWorkspace): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.get(
    '/api/sessions/:id/files',
    {
      schema: {
        tags,
        params: OfSession,
        querystring: FileList,
        response: { 200: z.object({ files: z.array(FileEntry), truncated: z.boolean() }) },
      },
    },
    async ({ tenantId, params, query }) => {
      const workspace = await getWorkspace(tenantId, params.id, 'read')
      return listFiles(workspace, {
        limit: query.limit,
        ...(query.path !== undefined && { path: query.path }),
      })
    },
  )

  routes.get(
    '/api/sessions/:id/files/*',
    { schema: { tags, params: OfFile, querystring: ReadQuery, response: { 200: FileText } } },
    async ({ tenantId, params, query }, reply) => {
      const workspace = await getWorkspace(tenantId, params.id, 'read')
      if (query.format === 'raw') return sendFile(reply, workspace, params['*'])
      const content = await readText(workspace, params['*'], MAX_TEXT_BYTES)
      return reply.send({ path: params['*'], content, size: Buffer.byteLength(content) })
    },
  )

  routes.post(
    '/api/sessions/:id/files',
    {
      schema: {
        tags,
        params: OfSession,
        body: FilesWrite,
        response: { 200: z.object({ files: z.array(Written) }) },
      },
    },
    async ({ tenantId, params, body }) => {
      const workspace = await getWorkspace(tenantId, params.id, 'write')
      return { files: await writeFiles(workspace, body) }
    },
  )

  routes.delete(
    '/api/sessions/:id/files/*',
    { schema: { tags, params: OfFile, response: { 200: Ok } } },
    async ({ tenantId, params }) => {
      await deleteFile(await getWorkspace(tenantId, params.id, 'write'), params['*'])
      return { ok: true as const }
    },
  )

  app.register((scope, _options, done) => {
    registerUpload(scope, getWorkspace)
    done()
  })
}

/** In a scope of its own: here every content type, JSON too, is the bytes of a file. */
function registerUpload(scope: FastifyInstance, getWorkspace: GetWorkspace): void {
  scope.removeAllContentTypeParsers()
  scope.addContentTypeParser('*', (_request, payload, done) => done(null, payload))
  scope.withTypeProvider<ZodTypeProvider>().put(
    '/api/sessions/:id/files/*',
    {
      schema: { tags, params: OfFile, response: { 200: Written } },
      config: { bodies: { raw: ['application/octet-stream'] } },
    },
    async ({ tenantId, params, headers, body }) => {
      if (Number(headers['content-length'] ?? 0) > MAX_FILE_BYTES) throw tooLarge()
      const workspace = await getWorkspace(tenantId, params.id, 'write')
      const content = (body ?? []) as AsyncIterable<Uint8Array> | []
      const { size } = await writeFile(workspace, params['*'], content, { maxBytes: MAX_FILE_BYTES })
      return { path: params['*'], size }
    },
  )
}

const tooLarge = () => new AshError('payload_too_large', `A file may have at most ${MAX_FILE_BYTES} bytes`)

/** Checks every path before the first is written: a request that is refused has changed nothing. */
async function writeFiles(workspace: Workspace, { files }: FilesWrite): Promise<z.infer<typeof Written>[]> {
  for (const { path } of files) await checkWritable(workspace, path)
  const written: z.infer<typeof Written>[] = []
  for (const { path, content, executable } of files) {
    const options = { maxBytes: MAX_FILE_BYTES, ...(executable !== undefined && { executable }) }
    const { size } = await writeFile(workspace, path, [Buffer.from(content, 'base64')], options)
    written.push({ path, size })
  }
  return written
}

/** Always as a download: a page made by an agent must not run with this server's origin. */
async function sendFile(reply: FastifyReply, workspace: Workspace, path: string): Promise<FastifyReply> {
  const { handle, size, modifiedAt } = await openFile(workspace, path)
  const name = encodeURIComponent(path.slice(path.lastIndexOf('/') + 1))
  reply.headers({
    'content-type': 'application/octet-stream',
    'content-length': size,
    'content-disposition': `attachment; filename*=UTF-8''${name}`,
    'last-modified': modifiedAt.toUTCString(),
    'x-content-type-options': 'nosniff',
  })
  if (size > 0) return reply.send(handle.createReadStream({ start: 0, end: size - 1 }))
  await handle.close()
  return reply.send('')
}
