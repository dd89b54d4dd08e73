import { Artifact, Paging, SessionId } from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { getSession } from '../sessions/session-queries.ts'
import { openArtifact, servedType } from './artifact-store.ts'
import { type ExecutionRow, getExecution, listExecutions } from './execution-queries.ts'
import { artifactsOf } from './execution-reply.ts'
import type { ExecutionDeps } from './executions.ts'

const Params = z.object({ id: SessionId })
const ArtifactParams = z.object({
  id: SessionId,
  executionId: z.uuid({ error: 'must be a UUID' }),
  '*': z.string().describe('Path in the workspace'),
})
const SessionArtifact = Artifact.extend({ executionId: z.string(), createdAt: z.iso.datetime() })
const tags = ['code']

/** Files that executions made or changed. */
export function registerArtifactRoutes(app: FastifyInstance, deps: ExecutionDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.get(
    '/api/sessions/:id/artifacts',
    {
      schema: {
        tags,
        summary: 'List the files that executions of a session made or changed, newest first',
        description: '`limit` counts executions.',
        params: Params,
        querystring: Paging,
        response: {
          200: z.object({ artifacts: z.array(SessionArtifact), nextCursor: z.string().optional() }),
        },
      },
    },
    async ({ tenantId, params, query }) => {
      await getSession(deps.db, tenantId, params.id)
      const page = { ...query, hasArtifacts: true }
      const { rows, nextCursor } = await listExecutions(deps.db, tenantId, params.id, page)
      const artifacts = rows.flatMap((row) => {
        const createdAt = new Date(row.finished_at ?? row.created_at).toISOString()
        return artifactsOf(row).map((artifact) => ({ ...artifact, executionId: row.id, createdAt }))
      })
      return { artifacts, ...(nextCursor !== undefined && { nextCursor }) }
    },
  )

  routes.get(
    '/api/sessions/:id/executions/:executionId/artifacts/*',
    {
      schema: {
        tags,
        summary: 'Download a file that an execution made or changed, as it was then',
        params: ArtifactParams,
        response: { 200: z.any().describe('The bytes of the file') },
      },
    },
    async ({ tenantId, params }, reply) => {
      const row = await getExecution(deps.db, tenantId, params.id, params.executionId)
      return sendArtifact(deps, reply, row, params['*'])
    },
  )
}

/** Always as a download: a page made by code must not run with this server's origin. */
async function sendArtifact(
  deps: ExecutionDeps,
  reply: FastifyReply,
  row: ExecutionRow,
  path: string,
): Promise<FastifyReply> {
  const { handle, artifact } = await openArtifact(deps, row, path)
  const name = encodeURIComponent(path.slice(path.lastIndexOf('/') + 1))
  reply.headers({
    'content-type': servedType(artifact),
    'content-length': artifact.size,
    'content-disposition': `attachment; filename*=UTF-8''${name}`,
    'x-content-type-options': 'nosniff',
    etag: `"${artifact.sha256}"`,
  })
  if (artifact.size > 0) return reply.send(handle.createReadStream({ start: 0, end: artifact.size - 1 }))
  await handle.close()
  return reply.send('')
}
