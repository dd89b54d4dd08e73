import { AshError } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import { sql } from 'kysely'
import type { DialectDeps } from '../dialect-deps.ts'

export function addHealthRoutes(scope: FastifyInstance, { sessions, version }: DialectDeps): void {
  const health = () => ({ status: 'healthy', version, uptime: process.uptime() })

  scope.get('/health', async () => health())

  scope.get('/health/detailed', async () => {
    const dependencies = {
      database: await stateOf(sql`select 1`.execute(sessions.db)),
      storage: sessions.remote?.isReachable === false ? 'unhealthy' : 'healthy',
      runtime_nodes: await stateOf(sessions.assertSandboxing()),
    }
    const isHealthy = Object.values(dependencies).every((state) => state === 'healthy')
    return { ...health(), status: isHealthy ? 'healthy' : 'degraded', dependencies }
  })

  // Nothing can be out of step: every change of a session is one of the database.
  scope.post('/health/sync', async () => ({
    status: 'success',
    message: 'State sync completed',
    result: { checked: sessions.pool.live, unhealthy: 0 },
  }))
}

/** Of other failures only the log knows more. */
async function stateOf(check: Promise<unknown>): Promise<string> {
  try {
    await check
    return 'healthy'
  } catch (error) {
    return error instanceof AshError ? `unhealthy: ${error.message}` : 'unhealthy'
  }
}
