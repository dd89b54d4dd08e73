import type { Limits, SandboxState } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { storedLimits } from '../../sessions/effective-limits.ts'
import type { DialectDeps } from '../dialect-deps.ts'
import { type ContainerRow, getContainer, listContainers, readLog } from './container-queries.ts'
import { fromLimits } from './resources.ts'
import { V1_SESSION_STATUSES, V1Page, type V1SessionStatus } from './session-schemas.ts'

const OfContainer = z.object({ id: z.string().min(1).max(64) })
const ListQuery = V1Page.extend({
  status: z.enum(V1_SESSION_STATUSES).optional(),
  runtime_type: z.string().max(64).optional(),
})
const LogQuery = z.object({
  tail: z.coerce.number().int().min(1).max(10_000).default(100),
  since: z.iso.datetime({ offset: true }).optional(),
})

const ALIVE: SandboxState[] = ['warm', 'waiting', 'running']
const STATES: Partial<Record<V1SessionStatus, SandboxState[]>> = { creating: ['warming'], running: ALIVE }

/** The dialect's containers are our sandboxes: those that live. */
export function addContainerRoutes(scope: FastifyInstance, { sessions }: DialectDeps): void {
  const routes = scope.withTypeProvider<ZodTypeProvider>()
  const { db, provider, limits } = sessions
  const show = (row: ContainerRow) => toContainer(row, provider.name, limits)

  routes.get('/containers', { schema: { querystring: ListQuery } }, async ({ tenantId, query }) => {
    const { status, runtime_type = provider.name, limit, offset } = query
    const wanted = status === undefined ? (['warming', ...ALIVE] as const) : (STATES[status] ?? [])
    const states = runtime_type === provider.name ? wanted : []
    const { rows, total } = await listContainers(db, tenantId, { states, limit, offset })
    return { containers: rows.map(show), total, limit, offset, has_more: offset + rows.length < total }
  })

  routes.get('/containers/:id', { schema: { params: OfContainer } }, async ({ tenantId, params }) =>
    show(await getContainer(db, tenantId, params.id)),
  )

  routes.get(
    '/containers/:id/logs',
    { schema: { params: OfContainer, querystring: LogQuery } },
    async ({ tenantId, params, query: { tail, since } }, reply) => {
      const { session_id } = await getContainer(db, tenantId, params.id)
      const from = { tail, since: since === undefined ? 0 : Date.parse(since) }
      const text = session_id === null ? '' : await readLog(db, tenantId, session_id, from)
      return reply.type('text/plain; charset=utf-8').send(text)
    },
  )
}

/** `most` is what a spare has, of no session yet. */
function toContainer(row: ContainerRow, runtimeType: string, most: Limits) {
  return {
    id: row.id,
    container_id: row.id,
    pod_name: null,
    runtime_type: runtimeType,
    status: row.state === 'warming' ? 'creating' : 'running',
    session_id: row.external_id ?? row.session_id,
    template_id: row.template,
    node_name: row.owner_id,
    resources: fromLimits(row.limits === null ? most : storedLimits(row.limits)),
    created_at: new Date(row.created_at).toISOString(),
    uptime_seconds: Math.max(0, Math.round((Date.now() - row.created_at) / 1000)),
  }
}
