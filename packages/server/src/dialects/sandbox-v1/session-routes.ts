import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { endSession } from '../../sessions/session-lifecycle.ts'
import { showSession } from '../../sessions/show-session.ts'
import type { DialectDeps } from '../dialect-deps.ts'
import { assertIndex, toPackages } from './dependencies.ts'
import { addPackages } from './install-packages.ts'
import { createV1Session } from './session-create.ts'
import { toInstalled, toV1Session } from './session-mapper.ts'
import { getV1Session, listV1Sessions, setExternalId, type V1SessionRow } from './session-queries.ts'
import { InstallRequest, OfSession, V1SessionCreate, V1SessionList } from './session-schemas.ts'

export function addSessionRoutes(scope: FastifyInstance, deps: DialectDeps): void {
  const routes = scope.withTypeProvider<ZodTypeProvider>()
  const { sessions } = deps
  const { db, install } = sessions
  const show = (row: V1SessionRow) => toV1Session(row, showSession(sessions, row), install.indexes)
  const read = async (tenantId: string, id: string) => show(await getV1Session(db, tenantId, id))

  routes.post('/sessions', { schema: { body: V1SessionCreate } }, async ({ tenantId, body }, reply) => {
    const { id } = await createV1Session(deps, tenantId, body)
    return reply.code(201).send(await read(tenantId, id))
  })

  routes.get('/sessions', { schema: { querystring: V1SessionList } }, async ({ tenantId, query }) => {
    const { rows, total } = await listV1Sessions(db, tenantId, query)
    const { limit, offset } = query
    return { items: rows.map(show), total, limit, offset, has_more: offset + rows.length < total }
  })

  routes.get('/sessions/:id', { schema: { params: OfSession } }, async ({ tenantId, params }) =>
    read(tenantId, params.id),
  )

  routes.post('/sessions/:id/terminate', { schema: { params: OfSession } }, async ({ tenantId, params }) => {
    const { id } = await getV1Session(db, tenantId, params.id)
    await endSession(sessions, tenantId, id)
    return read(tenantId, id)
  })

  routes.delete('/sessions/:id', { schema: { params: OfSession } }, async ({ tenantId, params }, reply) => {
    const row = await getV1Session(db, tenantId, params.id)
    await endSession(sessions, tenantId, row.id)
    await setExternalId(db, row, null)
    return reply.code(204).send()
  })

  routes.post(
    '/sessions/:id/dependencies/install',
    { schema: { params: OfSession, body: InstallRequest } },
    async ({ tenantId, params, body }) => {
      assertIndex(install.indexes, body.python_package_index_url)
      const { id } = await getV1Session(db, tenantId, params.id)
      const target = { tenantId, sessionId: id }
      const pip = await addPackages(sessions, target, toPackages(body.dependencies))
      const now = new Date().toISOString()
      return {
        ...(await read(tenantId, id)),
        installed_dependencies: pip.map((each) => toInstalled(each, now)),
        dependency_install_completed_at: now,
      }
    },
  )
}
