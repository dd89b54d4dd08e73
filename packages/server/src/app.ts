import { createRequire } from 'node:module'
import { sessionDirs } from '@ash-ai/sandbox'
import type { FastifyBaseLogger, FastifyInstance } from 'fastify'
import { registerAgentRoutes } from './agents/agent-routes.ts'
import type { Config } from './config.ts'
import { registerCredentialRoutes } from './credentials/credential-routes.ts'
import { registerFileRoutes } from './files/file-routes.ts'
import { createHttpApp } from './http/http-app.ts'
import type { Metrics } from './http/metrics.ts'
import { registerPlatformRoutes } from './http/platform-routes.ts'
import { registerEventRoutes } from './sessions/event-routes.ts'
import { registerMessageRoutes } from './sessions/message-routes.ts'
import { registerPermissionRoutes } from './sessions/permission-routes.ts'
import type { SessionDeps } from './sessions/session-deps.ts'
import { getOpenSession, ownerOf } from './sessions/session-lifecycle.ts'
import { registerSessionRoutes } from './sessions/session-routes.ts'

const { version } = createRequire(import.meta.url)('../package.json') as { version: string }

interface AppDeps {
  config: Config
  databaseKind: 'sqlite' | 'postgres'
  metrics: Metrics
  sessions: SessionDeps
  log: FastifyBaseLogger
}

/** The whole API over its dependencies: what `main.ts` serves and what writes the API document. */
export async function buildApp({
  config,
  databaseKind,
  metrics,
  sessions,
  log,
}: AppDeps): Promise<FastifyInstance> {
  const { db, secrets, dataDir, pool, provider, disk } = sessions
  const app = await createHttpApp({
    db,
    log,
    metrics,
    version,
    ...(config.apiKey !== undefined && { apiKey: config.apiKey }),
  })
  registerPlatformRoutes(app, {
    db,
    checkProvider: sessions.assertSandboxing,
    describe: () => ({
      version,
      database: databaseKind,
      provider: provider.name,
      isolation: provider.isolation,
      limits: provider.limits,
      model: config.model.kind,
      sandboxes: { live: pool.live, max: pool.max },
    }),
  })
  registerAgentRoutes(app, { db, secrets, dataDir, allowPathDeploy: config.allowPathDeploy })
  registerCredentialRoutes(app, { db, secrets })
  registerSessionRoutes(app, sessions)
  registerMessageRoutes(app, sessions)
  registerPermissionRoutes(app, sessions)
  registerEventRoutes(app, sessions)
  registerFileRoutes(app, async (tenantId, sessionId) => {
    const row = await getOpenSession(db, tenantId, sessionId)
    const owner = ownerOf(row)
    const dirs = sessionDirs(dataDir, sessionId)
    await disk.ensureMounted(dirs)
    return { root: dirs.workspace, ...(owner && { owner }) }
  })
  return app
}
