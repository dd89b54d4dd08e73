import { InstalledPackages, PackageInstall, PackageInstallRequest, SessionId } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { assertPersistent, getOpenSession } from '../sessions/open-session.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { installPackages } from './install-packages.ts'
import { listPackages } from './list-packages.ts'

const Params = z.object({ id: SessionId })
const Reply = z.object({ install: PackageInstall })
const tags = ['code']
/** Below what proxies and clients wait for an answer. */
const SYNC_TIMEOUT_MS = 290_000
const ASYNC_TIMEOUT_MS = 600_000

/** Packages of single sessions. */
export function registerPackageRoutes(app: FastifyInstance, deps: SessionDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.get(
    '/api/sessions/:id/packages',
    {
      schema: {
        tags,
        summary: "List the packages in a session's own environment",
        params: Params,
        response: { 200: InstalledPackages },
      },
    },
    async ({ tenantId, params }) => {
      const installed = await listPackages(deps, tenantId, params.id)
      const install = deps.installs.find(params.id)
      return { ...installed, ...(install && { install }) }
    },
  )

  routes.post(
    '/api/sessions/:id/packages',
    {
      schema: {
        tags,
        summary: 'Install packages into the environment of a session',
        description:
          'Inside the sandbox, under the network policy of the session. Waits for the end, up to 290 s, unless `async`.',
        params: Params,
        body: PackageInstallRequest,
        response: { 200: Reply, 202: Reply },
      },
    },
    async ({ tenantId, params, body }, reply) => {
      const { async: isAsync = false, ...packages } = body
      await getOpenSession(deps.db, tenantId, params.id)
      await assertPersistent(deps, tenantId, params.id)
      const timeoutMs = isAsync ? ASYNC_TIMEOUT_MS : SYNC_TIMEOUT_MS
      const target = { tenantId, sessionId: params.id, packages, timeoutMs }
      const { begun, ended } = deps.installs.begin(params.id, packages, () => installPackages(deps, target))
      if (!isAsync) return { install: await ended }
      ended.catch((err: unknown) => deps.log.info({ err, sessionId: params.id }, 'packages not installed'))
      return reply.code(202).send({ install: begun })
    },
  )
}
