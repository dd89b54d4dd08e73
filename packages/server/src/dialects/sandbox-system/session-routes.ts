import { AGENT_CONFIG_FILE, AGENT_STATE_FILE, AshError, toTemplateName } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { createSession } from '../../sessions/session-create.ts'
import { endSession } from '../../sessions/session-lifecycle.ts'
import { getSession, type SessionRow } from '../../sessions/session-queries.ts'
import { showSession } from '../../sessions/show-session.ts'
import { listTemplates } from '../../templates/template-queries.ts'
import type { DialectDeps } from '../dialect-deps.ts'
import { isWritable, MAX_AGENT_JSON_BYTES, readAgentFile, writeAgentFile } from './agent-files.ts'
import { sandboxUrl } from './sandbox-url.ts'
import { toMade, toState } from './system-mapper.ts'

const Create = z.object({
  agent_config: z
    .record(z.string(), z.unknown())
    .refine((config) => isWritable(config, MAX_AGENT_JSON_BYTES / 4), 'is too long, or nested too deeply')
    .nullish(),
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
    const { environment, provider, agent_config } = Create.parse(body ?? {})
    const { templates } = await listTemplates(sessions, tenantId, { limit: MAX_TEMPLATES })
    const names = templates.map(({ name }) => name)
    const { row } = await createSession(sessions, tenantId, {
      template: toTemplateName(environment, names),
      ...(provider && { provider: realProvider(providers, sessions.provider.name, provider) }),
    })
    if (agent_config) await keepConfig(deps, row, agent_config)
    const url = sandboxUrl(deps.previews, { tenantId, sessionId: row.id })
    return toMade(showSession(sessions, row), url)
  })

  routes.get('/api/sessions/:id', { schema: { params: OfSession } }, async ({ tenantId, params }) => {
    const row = await getSession(sessions.db, tenantId, params.id)
    const session = showSession(sessions, row)
    if (row.status === 'ended') return toState(session, { state: {}, agentConfig: null })
    const read = (path: string) => readAgentFile(deps, { tenantId, sessionId: row.id, path })
    const [state = {}, agentConfig = null] = await Promise.all([
      read(AGENT_STATE_FILE),
      read(AGENT_CONFIG_FILE),
    ])
    return toState(session, { state, agentConfig })
  })

  routes.delete(
    '/api/sessions/:id',
    { schema: { params: OfSession, querystring: DeleteQuery } },
    async ({ tenantId, params }) => {
      await endSession(sessions, tenantId, params.id)
      return { status: 'deleted', session_id: params.id }
    },
  )
}

/** With the files of the session, where the code in it finds it too. */
async function keepConfig(deps: DialectDeps, { tenant_id, id }: SessionRow, config: object): Promise<void> {
  const file = { tenantId: tenant_id, sessionId: id, path: AGENT_CONFIG_FILE }
  await writeAgentFile(deps, file, config).catch(async (error: unknown) => {
    await endSession(deps.sessions, tenant_id, id).catch((cause: unknown) =>
      deps.sessions.log.error({ err: cause, sessionId: id }, 'a session was not ended after all'),
    )
    throw error
  })
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
