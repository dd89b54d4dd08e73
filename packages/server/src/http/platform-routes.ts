import { AshError, Health, Ready } from '@ash-ai/shared'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { sql } from 'kysely'
import type { Db } from '../db/open-db.ts'

export interface PlatformDeps {
  db: Db
  /** What /health tells beside status and uptime. */
  describe: () => Omit<Health, 'status' | 'uptimeSeconds'>
  /** Rejects, saying what is missing, while sandboxes cannot be started. */
  checkProvider: () => Promise<void>
}

/** `/health`: the process answers. `/ready`: it can do its work. Both without a key. */
export function registerPlatformRoutes(app: FastifyInstance, deps: PlatformDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  routes.get(
    '/health',
    { schema: { tags: ['platform'], security: [], response: { 200: Health } } },
    async (): Promise<Health> => ({
      status: 'ok',
      uptimeSeconds: Math.round(process.uptime()),
      ...deps.describe(),
    }),
  )
  routes.get(
    '/ready',
    { schema: { tags: ['platform'], security: [], response: { 200: Ready, 503: Ready } } },
    async (request, reply) => {
      const ready = await checkReady(request, deps)
      return reply.code(ready.ready ? 200 : 503).send(ready)
    },
  )
}

async function checkReady(request: FastifyRequest, { db, checkProvider }: PlatformDeps): Promise<Ready> {
  const [database, provider] = await Promise.all([
    outcome(request, 'database', () => sql`select 1`.execute(db)),
    outcome(request, 'provider', checkProvider),
  ])
  return { ready: database === 'ok' && provider === 'ok', checks: { database, provider } }
}

const CHECK_TIMEOUT_MS = 5000

/** Anyone may ask, so only our own messages are shown; others are in the log. */
async function outcome(request: FastifyRequest, check: string, run: () => Promise<unknown>): Promise<string> {
  try {
    await withTimeout(run(), CHECK_TIMEOUT_MS)
    return 'ok'
  } catch (error) {
    request.log.warn({ check, err: error }, 'not ready')
    return error instanceof AshError ? error.message : 'failed; the log says why'
  }
}

async function withTimeout(work: Promise<unknown>, timeoutMs: number): Promise<void> {
  const { promise, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs)
  try {
    await Promise.race([work, promise])
  } finally {
    clearTimeout(timer)
  }
}
