import { createHash, timingSafeEqual } from 'node:crypto'
import { AshError, DEFAULT_TENANT } from '@ash-ai/shared'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { findTenantByKeyHash } from '../api-keys/api-key-queries.ts'
import type { Db } from '../db/open-db.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Whose data this request may touch. Empty on public routes. */
    tenantId: string
  }
}

/** What anyone may read. Matched against the route, not the URL, so that no spelling of a URL gets past. */
const PUBLIC_ROUTES: ReadonlySet<string> = new Set(['/health', '/ready', '/openapi.json'])
const isPublic = (route: string | undefined) =>
  route !== undefined && (PUBLIC_ROUTES.has(route) || route === '/docs' || route.startsWith('/docs/'))

export interface AuthOptions {
  db: Db
  /** ASH_API_KEY: accepted beside the keys of the database. */
  apiKey?: string
}

/** Every request needs a key, unknown paths too, save for the public routes. */
export function addAuth(app: FastifyInstance, { db, apiKey }: AuthOptions): void {
  const configuredHash = apiKey === undefined ? undefined : sha256(apiKey)
  app.decorateRequest('tenantId', '')
  app.addHook('onRequest', async (request) => {
    if (isPublic(request.routeOptions.url)) return
    request.tenantId = await authenticate(db, configuredHash, bearerKey(request))
  })
}

async function authenticate(db: Db, configuredHash: Buffer | undefined, key: string): Promise<string> {
  const hash = sha256(key)
  if (configuredHash && timingSafeEqual(hash, configuredHash)) return DEFAULT_TENANT
  const tenantId = await findTenantByKeyHash(db, hash.toString('hex'))
  if (tenantId === undefined) throw unauthorized('The API key is not known to this server')
  return tenantId
}

const MAX_KEY_CHARS = 1024

function bearerKey(request: FastifyRequest): string {
  const { authorization } = request.headers
  if (authorization === undefined) throw unauthorized('An API key is needed')
  const [, key] = /^Bearer +([\x21-\x7e]+) *$/i.exec(authorization.slice(0, MAX_KEY_CHARS)) ?? []
  if (key === undefined) throw unauthorized('The Authorization header is not a bearer key')
  return key
}

const unauthorized = (problem: string) =>
  new AshError('unauthorized', `${problem}. Send the header "Authorization: Bearer <key>".`)

const sha256 = (text: string) => createHash('sha256').update(text).digest()
