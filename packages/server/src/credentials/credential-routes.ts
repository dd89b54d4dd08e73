import { Credential, CredentialCreate, CredentialName, Paging } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import {
  type CredentialStore,
  deleteCredential,
  getCredential,
  listCredentials,
  putCredential,
} from './credential-queries.ts'

const Params = z.object({ name: CredentialName })
const OneCredential = z.object({ credential: Credential })
const ListQuery = Paging.extend({ cursor: CredentialName.optional() })
const tags = ['credentials']

export function registerCredentialRoutes(app: FastifyInstance, store: CredentialStore): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.post(
    '/api/credentials',
    {
      schema: {
        tags,
        summary:
          'Store a credential, or replace the one of that name; live sessions use it from their next request',
        body: CredentialCreate,
        response: { 200: OneCredential, 201: OneCredential },
      },
    },
    async ({ tenantId, body }, reply) => {
      const { credential, isNew } = await putCredential(store, tenantId, body)
      return reply.code(isNew ? 201 : 200).send({ credential })
    },
  )

  routes.get(
    '/api/credentials',
    {
      schema: {
        tags,
        summary: 'List credentials; secrets are never shown',
        querystring: ListQuery,
        response: { 200: z.object({ credentials: z.array(Credential), nextCursor: z.string().optional() }) },
      },
    },
    async ({ tenantId, query: { limit, cursor } }) =>
      listCredentials(store.db, tenantId, { limit, after: cursor }),
  )

  routes.get(
    '/api/credentials/:name',
    { schema: { tags, summary: 'Read a credential', params: Params, response: { 200: OneCredential } } },
    async ({ tenantId, params }) => ({ credential: await getCredential(store.db, tenantId, params.name) }),
  )

  routes.delete(
    '/api/credentials/:name',
    {
      schema: {
        tags,
        summary: 'Delete a credential; sessions that name it are refused from their next request',
        params: Params,
        response: { 200: z.object({ ok: z.literal(true) }) },
      },
    },
    async ({ tenantId, params }) => {
      await deleteCredential(store.db, tenantId, params.name)
      return { ok: true as const }
    },
  )
}
