import { FileLink, FileLinkCreate } from '@ash-ai/shared'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { openLink, signLink } from './file-links.ts'
import { receiveFile, takeRawBodies, WriteQuery } from './receive-file.ts'
import { sendFile } from './send-file.ts'
import { type FileRouteDeps, OfSession, tags, Written } from './session-files.ts'

/** In `http/auth.ts` this is a route that needs no key: the token is one. */
const SIGNED_ROUTE = '/files/signed/*'
const Signed = z.object({ '*': z.string().describe('What `POST …/files/links` has made') })

/** Links that let whoever has them read or write one file, for a while. */
export function registerFileLinkRoutes(app: FastifyInstance, deps: FileRouteDeps): void {
  app.withTypeProvider<ZodTypeProvider>().post(
    '/api/sessions/:id/files/links',
    {
      schema: {
        tags,
        summary: 'Make a link to a file that needs no key',
        params: OfSession,
        body: FileLinkCreate,
        response: { 200: FileLink },
      },
    },
    async (request) => {
      const { tenantId, params, body } = request
      // Also says that there is no such session.
      await deps.open(tenantId, params.id)
      const expiresAtMs = Date.now() + body.expiresIn * 1000
      const claims = { tenantId, sessionId: params.id, path: body.path, method: body.method, expiresAtMs }
      const url = `${originOf(request)}/files/signed/${signLink(deps.linkKey, claims)}`
      return { url, expiresAt: new Date(expiresAtMs).toISOString() }
    },
  )
  app.register((scope, _options, done) => {
    addSigned(scope, deps)
    done()
  })
}

function addSigned(scope: FastifyInstance, deps: FileRouteDeps): void {
  takeRawBodies(scope)
  const routes = scope.withTypeProvider<ZodTypeProvider>()
  const common = { tags, params: Signed, security: [] }
  routes.get(
    SIGNED_ROUTE,
    { schema: { ...common, summary: 'Read the file of a link' } },
    async (request, reply) => {
      const { tenantId, sessionId, path } = openLink(deps.linkKey, request.params['*'], 'GET')
      // The address is a secret.
      reply.header('referrer-policy', 'no-referrer')
      return sendFile(request, reply, await deps.open(tenantId, sessionId), path)
    },
  )
  routes.put(
    SIGNED_ROUTE,
    {
      schema: {
        ...common,
        summary: 'Write the file of a link',
        querystring: WriteQuery,
        response: { 200: Written },
      },
      config: { bodies: { raw: ['application/octet-stream'] } },
    },
    async (request, reply) => {
      const claims = openLink(deps.linkKey, request.params['*'], 'PUT')
      return receiveFile(deps, request, reply, { ...claims, mode: request.query.mode })
    },
  )
}

/** As the client has addressed this server, perhaps through a proxy that speaks https for it. */
function originOf({ protocol, host, headers }: FastifyRequest): string {
  const forwarded = String(headers['x-forwarded-proto'] ?? '').split(',', 1)[0]
  const scheme = forwarded === 'http' || forwarded === 'https' ? forwarded : protocol
  return /^[A-Za-z0-9.:[\]-]+$/.test(host) ? `${scheme}://${host}` : ''
}
