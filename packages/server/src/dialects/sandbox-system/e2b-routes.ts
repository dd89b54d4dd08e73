import { AshError } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { acceptExecution } from '../../executions/accept-execution.ts'
import { toSummary } from '../../executions/execution-reply.ts'
import { outcomeOf } from '../../executions/show-execution.ts'
import { getOpenSession } from '../../sessions/open-session.ts'
import type { DialectDeps } from '../dialect-deps.ts'
import { DEFAULT_URL_PORT, sandboxUrl } from './sandbox-url.ts'
import { AnyId } from './session-routes.ts'
import { toLanguage, toOutcome } from './system-mapper.ts'

const MAX_CODE_CHARS = 1024 * 1024
const MAX_BODY_BYTES = 24 * 1024 * 1024

const Execute = z.object({
  session_id: AnyId,
  code: z.string().min(1).max(MAX_CODE_CHARS),
  language: z
    .string()
    .default('python')
    .refine((name) => toLanguage(name) !== undefined, 'must be python, javascript or shell'),
})
const OfSession = z.object({ sid: AnyId })
const UrlQuery = z.object({ port: z.coerce.number().int().min(1).max(65_535).default(DEFAULT_URL_PORT) })

export function addE2bRoutes(scope: FastifyInstance, deps: DialectDeps): void {
  const { sessions } = deps
  const routes = scope.withTypeProvider<ZodTypeProvider>()

  routes.post(
    '/api/e2b/execute',
    { bodyLimit: MAX_BODY_BYTES, schema: { body: Execute } },
    async ({ tenantId, body: { session_id, code, language } }) => {
      const caller = { tenantId, isWaiting: true }
      const request = { code, language: toLanguage(language) }
      const accepted = await acceptExecution(sessions, caller, session_id, request)
      const { row, output } = await outcomeOf(sessions, accepted)
      return toOutcome(toSummary({ ...row, has_result: 0 }), output, row.results)
    },
  )

  routes.get(
    '/api/e2b/url/:sid',
    { schema: { params: OfSession, querystring: UrlQuery } },
    async ({ tenantId, params, query: { port } }) => {
      const { id } = await getOpenSession(sessions.db, tenantId, params.sid)
      const url = sandboxUrl(deps.previews, { tenantId, sessionId: id, port })
      if (url !== null) return { session_id: id, url }
      throw new AshError('route_not_found', 'Previews are switched off on this server by ASH_PREVIEW_PORT')
    },
  )
}
