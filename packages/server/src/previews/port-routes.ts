import { AshError, Port, PortNumber, PreviewLink, PreviewLinkCreate, SessionId } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { assertPersistent, getOpenSession } from '../sessions/open-session.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { useSession } from '../sessions/session-wake.ts'
import { TOKEN_PARAM } from './preview-access.ts'
import { previewOrigin } from './preview-address.ts'
import { signPreview } from './preview-links.ts'
import type { PreviewServer } from './preview-server.ts'

const Params = z.object({ id: SessionId })
const OnePort = Params.extend({ port: PortNumber })
const Ports = z.object({ ports: z.array(Port) })
const tags = ['live']

/** Who listens inside a session, and links to that. */
export function registerPortRoutes(
  app: FastifyInstance,
  deps: SessionDeps,
  previews: PreviewServer | undefined,
): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.get(
    '/api/sessions/:id/ports',
    {
      schema: {
        tags,
        summary: 'List the TCP ports on which something inside listens',
        params: Params,
        response: { 200: Ports },
      },
    },
    async ({ tenantId, params: { id } }) => {
      await getOpenSession(deps.db, tenantId, id)
      // In a session that sleeps nothing listens, and it is not woken to say so.
      if (!deps.live.awake(id)) return { ports: [] }
      return { ports: await useSession(deps, tenantId, id, ({ sandbox }) => listPorts(sandbox)) }
    },
  )

  routes.post(
    '/api/sessions/:id/ports/:port/links',
    {
      schema: {
        tags,
        summary: 'Make a link that shows what a port serves and needs no key',
        params: OnePort,
        body: PreviewLinkCreate,
        response: { 200: PreviewLink },
      },
    },
    async ({ tenantId, params: { id: sessionId, port }, body: { expiresIn, wake } }) => {
      await getOpenSession(deps.db, tenantId, sessionId)
      await assertPersistent(deps, tenantId, sessionId)
      if (!previews)
        throw new AshError('forbidden', 'Previews are switched off on this server by ASH_PREVIEW_PORT')
      const expiresAtMs = Date.now() + expiresIn * 1000
      const claims = { tenantId, sessionId, port, mayWake: wake, expiresAtMs }
      const token = signPreview(previews.linkKey, claims)
      const url = `${previewOrigin(previews.base, claims)}/?${TOKEN_PARAM}=${token}`
      return { url, expiresAt: new Date(expiresAtMs).toISOString() }
    },
  )
}

/** What comes from inside may be anything. */
const FromInside = z.object({
  ports: z
    .array(
      z.object({
        port: z.int().min(1).max(65_535),
        address: z.string().max(64),
        pid: z.int().min(1).optional(),
        command: z.string().max(200).optional(),
      }),
    )
    .max(256),
})

async function listPorts({ bridge }: { bridge: { call(command: { cmd: 'ports' }): Promise<unknown> } }) {
  const answer = FromInside.safeParse(await bridge.call({ cmd: 'ports' }))
  if (!answer.success)
    throw new AshError('bridge_protocol_error', 'The sandbox answered with no list of ports')
  return answer.data.ports
}
