import { hash, timingSafeEqual } from 'node:crypto'
import { AshError, DEFAULT_TENANT } from '@ash-ai/shared'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { findTenantByKeyHash } from '../api-keys/api-key-queries.ts'
import type { Db } from '../db/open-db.ts'
import { assertNoWebPage } from './keys-off.ts'

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
  '/api/v1/health',
  '/api/v1/health/',
  // What the link allows is signed.
  '/files/signed/*',
])
const isPublic = (route: string | undefined) =>
  route !== undefined && (PUBLIC_ROUTES.has(route) || route === '/docs' || route.startsWith('/docs/'))

export interface AuthOptions {
  db: Db
  /** ASH_API_KEY: accepted beside the keys of the database. */
  apiKey?: string | undefined
  /** `off`: no key is needed, but no web page is let in without one. Only for listeners on loopback. */
  keys?: 'on' | 'off'
}

/** Every request needs a key, unknown paths too, save for the public routes and where keys are off. */
export function addAuth(app: FastifyInstance, options: AuthOptions): void {
  const known = new KnownKeys()
  app.decorateRequest('tenantId', '')
  app.addHook('onRequest', async (request) => {
    const { url, config } = request.routeOptions
    if (isPublic(url)) return
    request.tenantId = config.tenantOf?.(request) ?? (await tenantOf(options, known, request))
  })
}

async function tenantOf(options: AuthOptions, known: KnownKeys, request: FastifyRequest): Promise<string> {
  const { authorization } = request.headers
  if (options.keys !== 'off' || authorization !== undefined)
    return authenticate(options, known, bearerKey(authorization))
  assertNoWebPage(request.headers)
  return DEFAULT_TENANT
}

/** Whose key it is, if it is one. */
export async function findTenant(
  { db, apiKey }: Pick<AuthOptions, 'db' | 'apiKey'>,
  key: string,
): Promise<string | undefined> {
  const digest = sha256(key)
  if (apiKey !== undefined && timingSafeEqual(digest, sha256(apiKey))) return DEFAULT_TENANT
  return findTenantByKeyHash(db, digest.toString('hex'))
}

async function authenticate(options: AuthOptions, known: KnownKeys, key: string): Promise<string> {
  const keyHash = sha256(key).toString('hex')
  const tenantId = known.find(keyHash) ?? (await findTenant(options, key))
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

function bearerKey(authorization: string | undefined): string {
  if (authorization === undefined) throw unauthorized('An API key is needed')
  const [, key] = /^Bearer +([\x21-\x7e]+) *$/i.exec(authorization.slice(0, MAX_KEY_CHARS)) ?? []
  if (key === undefined) throw unauthorized('The Authorization header is not a bearer key')
  return key
}

const unauthorized = (problem: string) =>
  new AshError('unauthorized', `${problem}. Send the header "Authorization: Bearer <key>".`)

const sha256 = (text: string) => hash('sha256', text, 'buffer')
