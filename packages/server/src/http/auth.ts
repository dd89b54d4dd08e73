import { hash, timingSafeEqual } from 'node:crypto'
import { AshError, DEFAULT_TENANT } from '@ash-ai/shared'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { findTenantByKeyHash } from '../api-keys/api-key-queries.ts'
import type { Db } from '../db/open-db.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Whose data this request may touch. Empty on public routes. */
    tenantId: string
  }
  interface FastifyContextConfig {
    /** Lets in who has something other than a key: says whose data the request may touch. Throws if it is not valid. */
    tenantOf?: (request: FastifyRequest) => string | undefined
  }
}

/** What anyone may read. Matched against the route, not the URL, so that no spelling of a URL gets past. */
const PUBLIC_ROUTES: ReadonlySet<string> = new Set([
  '/health',
  '/ready',
  '/openapi.json',
  // What the link allows is signed.
  '/files/signed/*',
])
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
  const known = new KnownKeys()
  app.decorateRequest('tenantId', '')
  app.addHook('onRequest', async (request) => {
    const { url, config } = request.routeOptions
    if (isPublic(url)) return
    request.tenantId =
      config.tenantOf?.(request) ?? (await authenticate(db, configuredHash, known, bearerKey(request)))
  })
}

async function authenticate(
  db: Db,
  configuredHash: Buffer | undefined,
  known: KnownKeys,
  key: string,
): Promise<string> {
  const digest = sha256(key)
  if (configuredHash && timingSafeEqual(digest, configuredHash)) return DEFAULT_TENANT
  const keyHash = digest.toString('hex')
  const tenantId = known.find(keyHash) ?? (await findTenantByKeyHash(db, keyHash))
  if (tenantId === undefined) throw unauthorized('The API key is not known to this server')
  known.remember(keyHash, tenantId)
  return tenantId
}

const REMEMBER_MS = 2_000
const MAX_REMEMBERED = 1_000

/** Keys seen a moment ago: a look-up for every request would be among its dearest steps. A key taken back lives on that long. */
class KnownKeys {
  readonly #tenants = new Map<string, { tenantId: string; untilMs: number }>()

  find(keyHash: string): string | undefined {
    const known = this.#tenants.get(keyHash)
    return known && known.untilMs > performance.now() ? known.tenantId : undefined
  }

  remember(keyHash: string, tenantId: string): void {
    if (this.find(keyHash) !== undefined) return
    if (this.#tenants.size >= MAX_REMEMBERED) this.#tenants.clear()
    this.#tenants.set(keyHash, { tenantId, untilMs: performance.now() + REMEMBER_MS })
  }
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

const sha256 = (text: string) => hash('sha256', text, 'buffer')
