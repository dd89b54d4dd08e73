import { AshError } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { getOpenSession } from '../../sessions/open-session.ts'
import { createSession } from '../../sessions/session-create.ts'
import { endSession } from '../../sessions/session-lifecycle.ts'
import { showSession } from '../../sessions/show-session.ts'
import { listTemplates } from '../../templates/template-queries.ts'
import type { DialectDeps } from '../dialect-deps.ts'
import { sandboxUrl } from './sandbox-url.ts'
import { toMade, toState, toTemplateName } from './system-mapper.ts'

const Create = z.object({
  agent_config: z.record(z.string(), z.unknown()).nullish(),
  environment: z.string().min(1).max(64).default('Python3'),
  provider: z.string().min(1).max(64).nullish(),
})
/** Whatever it is: one that is none of ours is not found. */
export const AnyId = z.string().min(1).max(64)
const OfSession = z.object({ id: AnyId })
/** The sandbox is that of the session: naming it is allowed, and not needed. */
const DeleteQuery = z.object({ sandbox_id: z.string().optional() })
const MAX_TEMPLATES = 10_000

/** Which of our providers stands for another, by its name. */
export type ProviderMap = Readonly<Record<string, string>>

export function addSystemSessions(scope: FastifyInstance, deps: DialectDeps, providers: ProviderMap): void {
  const { sessions } = deps
  const routes = scope.withTypeProvider<ZodTypeProvider>()

  routes.post('/api/sessions', { schema: { body: Create.nullish() } }, async ({ tenantId, body }) => {
    const { environment, provider } = Create.parse(body ?? {})
    const { templates } = await listTemplates(sessions, tenantId, { limit: MAX_TEMPLATES })
    const names = templates.map(({ name }) => name)
    const { row } = await createSession(sessions, tenantId, {
      template: toTemplateName(environment, names),
      ...(provider && { provider: realProvider(providers, sessions.provider.name, provider) }),
    })
    const url = sandboxUrl(deps.previews, { tenantId, sessionId: row.id })
    return toMade(showSession(sessions, row), url)
  })

  routes.get('/api/sessions/:id', { schema: { params: OfSession } }, async ({ tenantId, params }) =>
    toState(showSession(sessions, await getOpenSession(sessions.db, tenantId, params.id))),
  )

  routes.delete(
    '/api/sessions/:id',
    { schema: { params: OfSession, querystring: DeleteQuery } },
    async ({ tenantId, params }) => {
      await endSession(sessions, tenantId, params.id)
      return { status: 'deleted', session_id: params.id }
    },
  )
}

/** Another than the one asked for only where the operator has said so. */
function realProvider(providers: ProviderMap, real: string, asked: string): string {
  const name = providers[asked.toLowerCase()] ?? asked
  if (name === real) return name
  throw new AshError(
    'provider_unavailable',
    `This server runs sandboxes with ${real}, not ${asked}. Ask for ${real}, or have the operator set ` +
      `ASH_DIALECT_PROVIDER_MAP=${asked}=${real}`,
  )
}
