import { PermissionAnswer, PermissionRequest, PermissionResolution, SessionId } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { answerPermission } from './permissions.ts'
import type { SessionDeps } from './session-deps.ts'
import { getSession } from './session-queries.ts'

const Params = z.object({ id: SessionId })
const RequestParams = Params.extend({ requestId: z.uuid({ error: 'must be a UUID' }) })
const tags = ['conversation']

export function registerPermissionRoutes(app: FastifyInstance, deps: SessionDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.get(
    '/api/sessions/:id/permissions',
    {
      schema: {
        tags,
        summary: 'List what the agent asks and waits for, oldest first',
        params: Params,
        response: { 200: z.object({ permissions: z.array(PermissionRequest) }) },
      },
    },
    async (request) => {
      await getSession(deps.db, request.tenantId, request.params.id)
      return { permissions: deps.live.get(request.params.id)?.permissions.list() ?? [] }
    },
  )

  routes.post(
    '/api/sessions/:id/permissions/:requestId',
    {
      schema: {
        tags,
        summary: 'Answer a permission request or a question of the agent',
        params: RequestParams,
        body: PermissionAnswer,
        response: { 200: z.object({ permission: PermissionResolution }) },
      },
    },
    async (request) => {
      const { id: sessionId, requestId } = request.params
      const session = { tenantId: request.tenantId, sessionId }
      return { permission: await answerPermission(deps, session, requestId, request.body) }
    },
  )
}
