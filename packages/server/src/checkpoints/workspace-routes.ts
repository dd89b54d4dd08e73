import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGzip } from 'node:zlib'
import { type CheckpointStore, receiveTar, saveTar, workspaceTar } from '@ash-ai/sandbox'
import {
  AshError,
  Checkpoint,
  CheckpointId,
  Session,
  SessionId,
  STUCK_CLIENT_TIMEOUT_MS,
  WorkspaceUpload,
} from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import type { BuildFiles } from './replace-files.ts'

export interface WorkspaceRouteDeps {
  checkpoints: CheckpointStore
  /** Throws session_not_found and the like. */
  assertOpen(tenantId: string, sessionId: string): Promise<unknown>
  /** A checkpoint, all of it on this host: the one that is named, or of the session as it is now. */
  checkpointFor(
    tenantId: string,
    sessionId: string,
    checkpointId: string | undefined,
  ): Promise<{ manifest: string }>
  /** The session gets the files of the checkpoint that `build` makes from one of the present files. */
  replaceFiles(
    tenantId: string,
    sessionId: string,
    build: BuildFiles,
  ): Promise<{ session: Session; checkpoint: Checkpoint }>
}

const ARCHIVE_TYPES = [
  'application/gzip',
  'application/x-tar',
  'application/x-gzip',
  'application/octet-stream',
]
const UPLOAD_BOUNDS = { maxBytes: 4 * 1024 ** 3, maxEntries: 200_000 }
/** Each has a thread for as long as its client takes. */
const MAX_DOWNLOADS = 16
const MAX_DOWNLOADS_OF_TENANT = 8

const OfSession = z.object({ id: SessionId })
const DownloadQuery = z.object({
  checkpointId: CheckpointId.optional().describe('Default: the workspace as it is now'),
})
const tags = ['files']

/** In a scope of its own, since only here an archive is a valid body. */
export function registerWorkspaceRoutes(app: FastifyInstance, deps: WorkspaceRouteDeps): void {
  app.register((scope, _options, done) => {
    addDownload(scope, deps)
    addUpload(scope, deps)
    done()
  })
}

function addDownload(scope: FastifyInstance, deps: WorkspaceRouteDeps): void {
  /** The tenants of those under way. */
  const downloads: string[] = []
  const end = (tenantId: string) => void downloads.splice(downloads.indexOf(tenantId), 1)
  scope.withTypeProvider<ZodTypeProvider>().get(
    '/api/sessions/:id/workspace',
    {
      exposeHeadRoute: false,
      schema: {
        tags,
        summary: 'The workspace as a gzipped tar archive',
        params: OfSession,
        querystring: DownloadQuery,
      },
    },
    async ({ tenantId, params, query }, reply) => {
      const ofTenant = downloads.filter((other) => other === tenantId).length
      if (downloads.length >= MAX_DOWNLOADS || ofTenant >= MAX_DOWNLOADS_OF_TENANT)
        throw new AshError('too_many_readers', 'Too many workspaces are being downloaded already; try later')
      downloads.push(tenantId)
      try {
        const { manifest } = await deps.checkpointFor(tenantId, params.id, query.checkpointId)
        const tar = await workspaceTar(deps.checkpoints, tenantId, manifest)
        tar.once('close', () => end(tenantId))
        reply.raw.setTimeout(STUCK_CLIENT_TIMEOUT_MS, () => reply.raw.destroy())
        return sendZipped(reply, tar, `${params.id}.tar.gz`)
      } catch (error) {
        end(tenantId)
        throw error
      }
    },
  )
}

function sendZipped(reply: FastifyReply, tar: Readable, name: string): FastifyReply {
  // The fastest level: whoever waits for an archive waits for this, too.
  const zipped = createGzip({ level: 1 })
  pipeline(tar, zipped).catch((error: unknown) => {
    // Sent already is what came before: the client sees an archive that is cut off.
    reply.log.warn({ err: error, reqId: reply.request.id }, 'the archive of a workspace was not sent whole')
  })
  reply.headers({
    'content-type': 'application/gzip',
    'content-disposition': `attachment; filename="${name}"`,
    'x-content-type-options': 'nosniff',
  })
  return reply.send(zipped)
}

function addUpload(scope: FastifyInstance, deps: WorkspaceRouteDeps): void {
  scope.addContentTypeParser(ARCHIVE_TYPES, (_request, payload, done) => done(null, payload))
  scope.withTypeProvider<ZodTypeProvider>().post(
    '/api/sessions/:id/workspace',
    {
      schema: {
        tags,
        summary: 'Unpack a tar archive, gzipped or not, into the workspace: all of it, or nothing',
        params: OfSession,
        querystring: WorkspaceUpload,
        response: { 200: z.object({ session: Session, checkpoint: Checkpoint }) },
      },
      config: { bodies: { raw: ARCHIVE_TYPES } },
    },
    async ({ tenantId, params, query: { replace }, body }) => {
      await deps.assertOpen(tenantId, params.id)
      if (!(body instanceof Readable)) throw new AshError('archive_invalid', 'The request has no archive')
      await using archive = await receiveTar(deps.checkpoints, body, UPLOAD_BOUNDS)
      const request = { tenantId, replace, archive: archive.path, ...UPLOAD_BOUNDS }
      return await deps.replaceFiles(tenantId, params.id, (base, commit) =>
        saveTar(deps.checkpoints, { ...request, base }, commit),
      )
    },
  )
}
