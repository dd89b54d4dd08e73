import {
  AshError,
  CheckpointId,
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
import type { FileSource } from './checkpoint-files.ts'
import { deleteFile } from './delete-file.ts'
import { listFiles } from './list-files.ts'
import { openFile, readText } from './read-file.ts'
import { splitPath, type Workspace } from './workspace-folder.ts'
import { checkWritable, writeFile } from './write-file.ts'

/** The files of the sessions of a tenant. Throws session_not_found, checkpoint_not_found and the like. */
export interface SessionFiles {
  /** To be read: as they are, or as a checkpoint has them. */
  open(tenantId: string, sessionId: string, checkpointId?: string): Promise<FileSource>
  /** Lets `write` change the folder. Until it is done nobody exchanges the files for others. */
  change<Result>(
    tenantId: string,
    sessionId: string,
    write: (workspace: Workspace) => Promise<Result>,
  ): Promise<Result>
}

const MAX_TEXT_BYTES = 1024 * 1024

const OfSession = z.object({ id: SessionId })
const OfFile = z.object({ id: SessionId, '*': z.string().describe('Path in the workspace') })
const AsOf = z.object({
  checkpointId: CheckpointId.optional().describe('As the files were then; default as they are'),
})
const ReadQuery = AsOf.extend({ format: z.enum(['raw', 'json']).default('raw') })
const Listing = z.object({
  files: z.array(FileEntry),
  truncated: z.boolean(),
  source: z
    .enum(['live', 'checkpoint'])
    .describe('`checkpoint`: one was asked for, or the host has no folder of the session at the moment'),
})
const Written = z.object({ path: z.string(), size: z.number().int() })
const Ok = z.object({ ok: z.literal(true) })
const tags = ['files']

export function registerFileRoutes(app: FastifyInstance, sessionFiles: SessionFiles): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.get(
    '/api/sessions/:id/files',
    {
      schema: {
        tags,
        params: OfSession,
        querystring: FileList.extend(AsOf.shape),
        response: { 200: Listing },
      },
    },
    async ({ tenantId, params, query: { path, limit, checkpointId } }) => {
      const source = await sessionFiles.open(tenantId, params.id, checkpointId)
      const options = { limit, ...(path !== undefined && { path }) }
      if (!('checkpoint' in source)) return { ...(await listFiles(source, options)), source: 'live' as const }
      return { ...(await source.checkpoint.list(options)), source: 'checkpoint' as const }
    },
  )

  routes.get(
    '/api/sessions/:id/files/*',
    { schema: { tags, params: OfFile, querystring: ReadQuery, response: { 200: FileText } } },
    async ({ tenantId, params, query }, reply) => {
      const path = params['*']
      splitPath(path)
      const source = await sessionFiles.open(tenantId, params.id, query.checkpointId)
      if (query.format === 'raw') return sendFile(reply, source, path)
      const content = await readText(source, path, MAX_TEXT_BYTES)
      return reply.send({ path, content, size: Buffer.byteLength(content) })
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
    async ({ tenantId, params, body }) => ({
      files: await sessionFiles.change(tenantId, params.id, (workspace) => writeFiles(workspace, body)),
    }),
  )

  routes.delete(
    '/api/sessions/:id/files/*',
    { schema: { tags, params: OfFile, response: { 200: Ok } } },
    async ({ tenantId, params }) => {
      await sessionFiles.change(tenantId, params.id, (workspace) => deleteFile(workspace, params['*']))
      return { ok: true as const }
    },
  )

  app.register((scope, _options, done) => {
    registerUpload(scope, sessionFiles)
    done()
  })
}

/** In a scope of its own: here every content type, JSON too, is the bytes of a file. */
function registerUpload(scope: FastifyInstance, sessionFiles: SessionFiles): void {
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
      const content = (body ?? []) as AsyncIterable<Uint8Array> | []
      const { size } = await sessionFiles.change(tenantId, params.id, (workspace) =>
        writeFile(workspace, params['*'], content, { maxBytes: MAX_FILE_BYTES }),
      )
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
async function sendFile(reply: FastifyReply, source: FileSource, path: string): Promise<FastifyReply> {
  const file = await openFile(source, path)
  const name = encodeURIComponent(path.slice(path.lastIndexOf('/') + 1))
  reply.headers({
    'content-type': 'application/octet-stream',
    'content-length': file.size,
    'content-disposition': `attachment; filename*=UTF-8''${name}`,
    'last-modified': file.modifiedAt.toUTCString(),
    'x-content-type-options': 'nosniff',
  })
  if (file.size > 0) return reply.send(file.stream())
  await file[Symbol.asyncDispose]()
  return reply.send('')
}
