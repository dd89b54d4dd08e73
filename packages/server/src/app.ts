import { createRequire } from 'node:module'
import type { FastifyBaseLogger, FastifyInstance } from 'fastify'
import { registerAgentRoutes } from './agents/agent-routes.ts'
import { toCheckpoint } from './checkpoints/checkpoint-queries.ts'
import { registerCheckpointRoutes } from './checkpoints/checkpoint-routes.ts'
import { registerGarbageRoutes } from './checkpoints/garbage-routes.ts'
import { replaceFiles } from './checkpoints/replace-files.ts'
import { changeFiles, openFiles } from './checkpoints/session-files.ts'
import { checkpointFor } from './checkpoints/take-checkpoint.ts'
import { registerWorkspaceRoutes } from './checkpoints/workspace-routes.ts'
import type { Config } from './config.ts'
import { registerCredentialRoutes } from './credentials/credential-routes.ts'
import { buildDialectApp, type DialectOptions } from './dialects/dialect-app.ts'
import { registerSandboxV1 } from './dialects/sandbox-v1/register-sandbox-v1.ts'
import { registerExecutionRoutes } from './executions/execution-routes.ts'
import type { ExecutionDeps } from './executions/executions.ts'
import { registerKernelRoutes } from './executions/kernel-routes.ts'
import { registerFileRoutes } from './files/file-routes.ts'
import type { SessionFiles } from './files/session-files.ts'
import { createHttpApp } from './http/http-app.ts'
import type { Metrics } from './http/metrics.ts'
import { registerPlatformRoutes } from './http/platform-routes.ts'
import { registerPackageRoutes } from './packages/package-routes.ts'
import { registerPortRoutes } from './previews/port-routes.ts'
import type { PreviewServer } from './previews/preview-server.ts'
import { registerSandboxRoutes } from './sandboxes/sandbox-routes.ts'
import { registerEventRoutes } from './sessions/event-routes.ts'
import { prepareForFiles } from './sessions/first-files.ts'
import { registerMessageRoutes } from './sessions/message-routes.ts'
import { getOpenSession } from './sessions/open-session.ts'
import { registerPermissionRoutes } from './sessions/permission-routes.ts'
import { getSession } from './sessions/session-queries.ts'
import { registerSessionRoutes } from './sessions/session-routes.ts'
import { showSession } from './sessions/show-session.ts'
import { registerTemplateRoutes } from './templates/template-routes.ts'
import { registerTerminalRoutes } from './terminals/terminal-routes.ts'

const { version } = createRequire(import.meta.url)('@ash-ai/server/package.json') as { version: string }

interface AppDeps {
  config: Config
  databaseKind: 'sqlite' | 'postgres'
  metrics: Metrics
  sessions: ExecutionDeps
  previews?: PreviewServer | undefined
  log: FastifyBaseLogger
}

/** The whole API over its dependencies: what `main.ts` serves and what writes the API document. */
export async function buildApp({
  config,
  databaseKind,
  metrics,
  sessions,
  previews,
  log,
}: AppDeps): Promise<FastifyInstance> {
  const { db, secrets, dataDir, pool, provider } = sessions
  const app = await createHttpApp({
    db,
    log,
    metrics,
    version,
    apiKey: config.apiKey,
    keys: config.keys,
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
      ...(sessions.remote && { snapshotStore: sessions.remote.isReachable ? 'ok' : 'unreachable' }),
    }),
  })
  registerAgentRoutes(app, {
    db,
    secrets,
    dataDir,
    allowPathDeploy: config.allowPathDeploy,
    spares: sessions.spares,
  })
  registerCredentialRoutes(app, { db, secrets })
  registerTemplateRoutes(app, sessions)
  registerSessionRoutes(app, sessions)
  registerMessageRoutes(app, sessions)
  registerPermissionRoutes(app, sessions)
  registerEventRoutes(app, sessions)
  registerCheckpointRoutes(app, sessions)
  const files = filesOf(sessions)
  registerFileRoutes(app, { linkKey: secrets.deriveKey('file links'), ...files })
  registerWorkspaceRoutes(app, {
    checkpoints: sessions.checkpoints,
    assertOpen: (...session) => getOpenSession(db, ...session),
    checkpointFor: (...checkpoint) => checkpointFor(sessions, ...checkpoint),
    replaceFiles: async (tenantId, sessionId, build) => {
      await prepareForFiles(sessions, tenantId, sessionId)
      const made = await replaceFiles(sessions, tenantId, sessionId, build)
      const row = await getSession(db, tenantId, sessionId)
      return { session: showSession(sessions, row), checkpoint: toCheckpoint(made, row) }
    },
  })
  registerExecutionRoutes(app, sessions)
  registerKernelRoutes(app, sessions)
  registerPackageRoutes(app, sessions)
  registerSandboxRoutes(app, sessions)
  registerPortRoutes(app, sessions, previews)
  registerTerminalRoutes(app, sessions)
  registerGarbageRoutes(app, sessions)
  registerSandboxV1(app, { sessions, files, version })
  return app
}

/** The listener for other vocabularies. */
export async function buildDialects(
  { config, metrics, sessions, previews, log }: Omit<AppDeps, 'databaseKind'>,
  options: DialectOptions,
): Promise<FastifyInstance> {
  const http = { db: sessions.db, log, metrics, version, apiKey: config.apiKey }
  return buildDialectApp(http, { sessions, files: filesOf(sessions), previews, version }, options)
}

const filesOf = (sessions: ExecutionDeps): SessionFiles => ({
  open: (...file) => openFiles(sessions, ...file),
  change: async (tenantId, sessionId, write) => {
    await prepareForFiles(sessions, tenantId, sessionId)
    return changeFiles(sessions, tenantId, sessionId, write)
  },
})
