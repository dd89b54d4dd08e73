import {
  FileDelete,
  FileEntry,
  FileList,
  FileSearch,
  FileStat,
  FilesWrite,
  FileText,
  MAX_FILE_BYTES,
} from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { deleteFile } from './delete-file.ts'
import { registerFileChangeRoutes } from './file-change-routes.ts'
import { registerFileLinkRoutes } from './file-link-routes.ts'
import { registerFileUploadRoutes } from './file-upload-routes.ts'
import { FileWatchers } from './file-watchers.ts'
import { listFiles } from './list-files.ts'
import { readText } from './read-file.ts'
import { searchFiles } from './search-files.ts'
import { sendFile } from './send-file.ts'
import { AsOf, type FileRouteDeps, OfFile, OfSession, tags, Written } from './session-files.ts'
import { statFile } from './stat-file.ts'
import { splitPath, type Workspace } from './workspace-folder.ts'
import { checkWritable, writeFile } from './write-file.ts'

const MAX_TEXT_BYTES = 1024 * 1024

const ReadQuery = AsOf.extend({
  format: z.enum(['raw', 'json']).default('raw'),
  stat: z.string().optional().describe('Instead of the content: type, size, mode, time and etag'),
})
type ReadQuery = z.infer<typeof ReadQuery>
const Found = z.object({ files: z.array(FileEntry), truncated: z.boolean() })
const Listing = Found.extend({
  nextCursor: z.string().optional(),
  source: z
    .enum(['live', 'checkpoint'])
    .describe('`checkpoint`: one was asked for, or the host has no folder of the session at the moment'),
})
const Ok = z.object({ ok: z.literal(true) })

export function registerFileRoutes(app: FastifyInstance, deps: FileRouteDeps): void {
  addReading(app, deps)
  addWriting(app, deps)
  registerFileChangeRoutes(app, deps)
  registerFileLinkRoutes(app, deps)
  registerFileUploadRoutes(app, deps)
}

function addReading(app: FastifyInstance, deps: FileRouteDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  const watchers = new FileWatchers(app, deps)

  routes.get(
    '/api/sessions/:id/files',
    {
      schema: {
        tags,
        summary: 'List files, or watch them',
        params: OfSession,
        querystring: FileList.extend(AsOf.shape),
        response: { 200: Listing },
      },
    },
    async ({ method, tenantId, params, query: { watch, checkpointId, ...options } }, reply) => {
      if (watch && method === 'GET')
        return watchers.stream(reply, { tenantId, sessionId: params.id, path: options.path })
      const source = await deps.open(tenantId, params.id, checkpointId)
      const listing = await listFiles(source, options)
      return { ...listing, source: 'checkpoint' in source ? ('checkpoint' as const) : ('live' as const) }
    },
  )

  routes.get(
    '/api/sessions/:id/files/search',
    {
      schema: {
        tags,
        summary: 'Find files by name',
        params: OfSession,
        querystring: FileSearch.partial({ query: true }).extend(ReadQuery.shape),
        response: { 200: Found },
      },
    },
    async (request, reply) => {
      const { tenantId, params, query } = request
      // Without a query it is a file of that name.
      if (query.query === undefined) return sendAny(deps, request, reply, { ...params, '*': 'search' }, query)
      const source = await deps.open(tenantId, params.id, query.checkpointId)
      return reply.send(await searchFiles(source, { ...query, query: query.query }))
    },
  )

  routes.get(
    '/api/sessions/:id/files/*',
    {
      schema: {
        tags,
        summary: 'Read a file: its bytes, a range of them, its text as JSON, or what is known about it',
        params: OfFile,
        querystring: ReadQuery,
        response: { 200: z.union([FileText, FileStat]) },
      },
    },
    async (request, reply) => sendAny(deps, request, reply, request.params, request.query),
  )
}

async function sendAny(
  deps: FileRouteDeps,
  request: FastifyRequest,
  reply: FastifyReply,
  { id, '*': path }: z.infer<typeof OfFile>,
  query: ReadQuery,
): Promise<FastifyReply> {
  splitPath(path)
  const source = await deps.open(request.tenantId, id, query.checkpointId)
  if (query.stat !== undefined) return reply.send(await statFile(source, path))
  if (query.format === 'raw') return sendFile(request, reply, source, path)
  const content = await readText(source, path, MAX_TEXT_BYTES)
  return reply.send({ path, content, size: Buffer.byteLength(content) })
}

function addWriting(app: FastifyInstance, deps: FileRouteDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.post(
    '/api/sessions/:id/files',
    {
      schema: {
        tags,
        summary: 'Write several files, their content in base64',
        params: OfSession,
        body: FilesWrite,
        response: { 200: z.object({ files: z.array(Written) }) },
      },
    },
    async ({ tenantId, params, body }) => ({
      files: await deps.change(tenantId, params.id, (workspace) => writeFiles(workspace, body)),
    }),
  )

  routes.delete(
    '/api/sessions/:id/files/*',
    {
      schema: {
        tags,
        summary: 'Delete a file, a link or a folder',
        params: OfFile,
        querystring: FileDelete,
        response: { 200: Ok },
      },
    },
    async ({ tenantId, params, query }) => {
      await deps.change(tenantId, params.id, (workspace) => deleteFile(workspace, params['*'], query))
      return { ok: true as const }
    },
  )
}

/** Checks every path before the first is written: a request that is refused has changed nothing. */
async function writeFiles(workspace: Workspace, { files }: FilesWrite): Promise<Written[]> {
  for (const { path } of files) await checkWritable(workspace, path)
  const written: Written[] = []
  for (const { path, content, executable } of files) {
    const options = { maxBytes: MAX_FILE_BYTES, ...(executable !== undefined && { executable }) }
    const { size } = await writeFile(workspace, path, [Buffer.from(content, 'base64')], options)
    written.push({ path, size })
  }
  return written
}
