import type { Server } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { offlineScript, startMessagesApi } from '@ash-ai/offline-model'
import {
  armFaultPoint,
  assertReachable,
  CheckpointStore,
  chooseDisk,
  chooseLimits,
  createProvider,
  loadPrices,
  type ModelUpstream,
  openRemoteStore,
  type RemoteStore,
  removeOtherRuntimes,
  SANDBOX_PATHS,
  SandboxManager,
  SandboxPool,
  type SandboxProvider,
  type SessionDirs,
  stageRuntime,
} from '@ash-ai/sandbox'
import { SessionMode } from '@ash-ai/shared'
import type { FastifyBaseLogger, FastifyInstance } from 'fastify'
import { cleanAgentFolders } from './agents/agent-deploy.ts'
import { AgentLayers } from './agents/agent-layers.ts'
import { listAllAgents } from './agents/agent-queries.ts'
import { ensureFirstKey } from './api-keys/ensure-first-key.ts'
import { buildApp, buildDialects } from './app.ts'
import { startHousekeeping } from './checkpoints/housekeeping.ts'
import { OutsideWrites } from './checkpoints/outside-writes.ts'
import { Uploads } from './checkpoints/uploads.ts'
import type { Config } from './config.ts'
import { assertSameDatabase, openDataDir } from './data-dir.ts'
import { type Db, getInstallationId, openDb } from './db/open-db.ts'
import { openSecretBox } from './db/secret-box.ts'
import { recoverExecutions, stopExecutions } from './executions/recover-executions.ts'
import { withExecutions } from './executions/with-executions.ts'
import { createMetrics } from './http/metrics.ts'
import { locateRuntime } from './locate-runtime.ts'
import { PackageInstalls } from './packages/package-installs.ts'
import { startPreviewServer } from './previews/preview-server.ts'
import { applyRegistry, openRegistry } from './registry/apply-registry.ts'
import { createSandboxStore, forgetSandboxes } from './sandboxes/sandbox-rows.ts'
import { findSparePlan } from './sandboxes/spare-plans.ts'
import { WarmSpares } from './sandboxes/warm-spares.ts'
import { EventLogs } from './sessions/event-log.ts'
import { startIdleSweep } from './sessions/idle-sweep.ts'
import { LiveSessions } from './sessions/live-sessions.ts'
import { resumeWaitingTurns, WaitingTurns } from './sessions/queued-turns.ts'
import type { SessionDeps } from './sessions/session-deps.ts'
import { createSessionMetrics } from './sessions/session-metrics.ts'
import { recoverSessions, stopSessions } from './sessions/session-recovery.ts'
import { listAllTemplates } from './templates/template-queries.ts'

export interface RunningServer {
  url: string
  /** Lets running turns finish within the time allowed, pauses every session, closes everything. */
  close(): Promise<void>
}

export async function startServer(config: Config, log: FastifyBaseLogger): Promise<RunningServer> {
  const closers: (() => unknown)[] = []
  const close = async () => {
    for (const closer of closers.splice(0).reverse()) await closer()
  }
  try {
    return { url: await start(config, log, closers), close }
  } catch (error) {
    await close()
    throw error
  }
}

/** Each part says in `closers` how it is taken down; they run in reverse order. */
async function start(config: Config, log: FastifyBaseLogger, closers: (() => unknown)[]): Promise<string> {
  // Before anything is touched: with faults nothing is to change.
  const registry = await openRegistry(config, log)
  const dataDir = await openDataDir(config.dataDir)
  closers.push(dataDir.release)
  const { db, kind, close: closeDb } = await openDb(config)
  closers.push(closeDb)
  await assertSameDatabase(config.dataDir, await getInstallationId(db))
  const upstream = await connectModel(config, closers)
  const limits = await chooseLimits(`ash-${dataDir.hostId.slice(0, 8)}`, isRoot)
  await limits.removeLeftovers()
  closers.push(() => limits.close())
  // After the processes that a killed server left: they may have files open there.
  const disk = await chooseDisk(config.dataDir)
  closers.push(() => disk.close())
  const provider = createProvider(config.provider, limits, disk.enforcement)
  const runtime = await stageRuntime(config.runtimeDir, locateRuntime(config.bridgeEntry))
  // Within the data directory the lock says that nobody else uses it.
  if (dirname(config.runtimeDir) === config.dataDir) await removeOtherRuntimes(runtime)
  const keylessPorts = new Set<number>()
  const manager = new SandboxManager({
    closedPorts: keylessPorts,
    provider,
    disk,
    runtime,
    upstream,
    modelIdleTimeoutMs: config.modelIdleTimeoutMs,
    env:
      config.claudeMaxRetries === undefined
        ? {}
        : { CLAUDE_CODE_MAX_RETRIES: String(config.claudeMaxRetries) },
  })
  const { hostId } = dataDir
  await forgetSandboxes(db, hostId)
  const pool = new SandboxPool(manager, config.maxSandboxes, createSandboxStore({ db, hostId, log }))
  const metrics = createMetrics()
  const prices = loadPrices(config.modelPrices)
  const hasOwnPaths = provider.isolation !== 'none'
  const install = {
    indexes: config.packageIndexes,
    pathsInside: ({ home }: SessionDirs) =>
      hasOwnPaths ? SANDBOX_PATHS : { home, nodeDir: dirname(runtime.node) },
  }
  const layers = hasOwnPaths
    ? new AgentLayers({ dataDir: config.dataDir, pool, disk, prices, install, log })
    : undefined
  const checkpoints = openCheckpoints(config)
  closers.push(() => checkpoints.close())
  const remote = await connectRemote(config, db, log)
  closers.push(() => remote?.close())
  const uploads = remote && new Uploads({ db, hostId, store: checkpoints, remote, log })
  // After the sessions were saved: this machine may be gone for good.
  closers.push(() => uploads?.close(config.shutdownTimeoutMs))
  const secrets = await openSecretBox(config)
  const sandboxUids = canSwitchUsers(provider) ? config.sandboxUids : undefined
  const spares = new WarmSpares({
    db,
    hostId,
    dataDir: config.dataDir,
    pool,
    disk,
    prices,
    layers,
    install,
    sandboxUids,
    findPlan: (kind) => findSparePlan({ ...config, db, secrets }, kind),
    log,
  })
  const sessions = withExecutions(
    {
      db,
      secrets,
      dataDir: config.dataDir,
      hostId,
      pool,
      provider,
      disk,
      assertSandboxing: sandboxingCheck(provider, [config.dataDir, runtime.dir]),
      sandboxUids,
      spares,
      turnTimeoutMs: config.turnTimeoutMs,
      permissionTimeoutMs: config.permissionTimeoutMs,
      maxLogChars: config.maxLogChars,
      debugTiming: config.debugTiming,
      checkpoints,
      remote,
      uploads,
      writes: new OutsideWrites(),
      retention: config.retention,
      idleTimeoutMs: config.idleTimeoutMs,
      codeIdleTimeoutMs: config.codeIdleTimeoutMs,
      codeLifetimeMs: config.codeLifetimeMs,
      warmSpares: config.warmSpares,
      limits: config.limits,
      prices,
      install,
      layers,
      log,
      metrics: createSessionMetrics(metrics.registry, pool),
      logs: new EventLogs(db),
      live: new LiveSessions(),
      waiting: new WaitingTurns(),
      sends: new Map(),
      installs: new PackageInstalls(),
    },
    {
      registry: metrics.registry,
      artifactDays: config.artifactDays,
      maxArtifactBytes: config.maxArtifactBytes,
    },
  )
  await ensureFirstKey({
    db,
    dataDir: config.dataDir,
    log,
    ...(config.apiKey !== undefined && { apiKey: config.apiKey }),
  })
  await cleanAgentFolders(sessions)
  if (registry) await applyRegistry(sessions, registry, log)
  const recovered = await recoverSessions(sessions)
  const { previews: previewConfig, host, apiKey } = config
  const previews = previewConfig && (await startPreviewServer(sessions, { ...previewConfig, host, apiKey }))
  closers.push(() => previews?.close())
  const app = await buildApp({ config, databaseKind: kind, metrics, sessions, previews, log })
  const unused = trackUnused(app.server)
  closers.push(() => closeApp(app, unused, config.shutdownTimeoutMs))
  const dialectDeps = { config, metrics, sessions, previews, log }
  const listenForDialects = await prepareDialects(dialectDeps, keylessPorts, closers)
  closers.push(() => stopSessions(sessions, config.shutdownTimeoutMs))
  closers.push(() => stopExecutions(sessions, config.shutdownTimeoutMs))
  closers.push(() => layers?.close())
  closers.push(() => spares.close())
  // Before anybody can ask for more: what is open now is what the last server left.
  await recoverExecutions(sessions)
  await listenForDialects()
  await app.listen({ port: config.port, host: config.host })
  const address = app.server.address() as AddressInfo
  if (config.keys === 'off') keylessPorts.add(address.port)
  const url = urlOf(address)
  await resumeWaitingTurns(sessions)
  uploads?.start()
  closers.push(startIdleSweep(sessions))
  closers.push(startHousekeeping(sessions, config.gcIntervalMs))
  await fillSpares(sessions)
  log.info(
    {
      url,
      keys: config.keys,
      previews: previews?.base.host,
      database: kind,
      provider: provider.name,
      model: config.model.kind,
      recovered,
    },
    'Ash is listening',
  )
  await sessions
    .assertSandboxing()
    .catch((error: Error) => log.error(`Sandboxes cannot start: ${error.message}`))
  return url
}

/** In other vocabularies, where the operator wants that. Returns what begins to listen. */
async function prepareDialects(
  deps: Parameters<typeof buildDialects>[0],
  keylessPorts: Set<number>,
  closers: (() => unknown)[],
): Promise<() => Promise<void>> {
  const { dialects, host, shutdownTimeoutMs } = deps.config
  if (!dialects) return async () => {}
  const app = await buildDialects(deps, dialects)
  const unused = trackUnused(app.server)
  closers.push(() => closeApp(app, unused, shutdownTimeoutMs))
  return async () => {
    await app.listen({ port: dialects.port, host })
    const address = app.server.address() as AddressInfo
    if (dialects.keys === 'off') keylessPorts.add(address.port)
    const dialectUrl = urlOf(address)
    deps.log.info({ dialectUrl, keys: dialects.keys }, 'dialects are listening')
  }
}

function openCheckpoints({ dataDir, sqliteSync, faultPoint }: Config): CheckpointStore {
  armFaultPoint(faultPoint)
  const sync = sqliteSync === 'full'
  return new CheckpointStore({
    dir: join(dataDir, 'snapshots'),
    sync,
    ...(faultPoint !== undefined && { faultPoint }),
  })
}

async function connectRemote(
  { snapshotStore }: Config,
  db: Db,
  log: FastifyBaseLogger,
): Promise<RemoteStore | undefined> {
  if (!snapshotStore) return undefined
  const store = await openRemoteStore(snapshotStore, await getInstallationId(db))
  if (!store.isReachable) log.error('The snapshot store does not answer; checkpoints wait on this host')
  return store
}

/** Of every agent and template that wants some. */
async function fillSpares({ db, spares }: SessionDeps): Promise<void> {
  for (const { tenant_id, name } of await listAllAgents(db))
    spares.refill({ tenantId: tenant_id, of: 'agent', name })
  for (const { tenant_id, name } of await listAllTemplates(db))
    for (const of of SessionMode.options) spares.refill({ tenantId: tenant_id, of, name })
}

const IDLE_CHECK_MS = 20

/** Connections on which no request has come yet: Node takes those for busy. */
function trackUnused(server: Server): Set<Socket> {
  const unused = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    unused.add(socket)
    socket.once('close', () => unused.delete(socket))
  })
  server.on('request', ({ socket }) => unused.delete(socket))
  return unused
}

/** A connection that is idle, or falls idle after closing began, would keep the server for a minute. */
async function closeApp(app: FastifyInstance, unused: Set<Socket>, deadlineMs: number): Promise<void> {
  const idle = setInterval(() => {
    app.server.closeIdleConnections()
    for (const socket of unused) socket.destroy()
  }, IDLE_CHECK_MS)
  const deadline = setTimeout(() => app.server.closeAllConnections(), deadlineMs)
  try {
    await app.close()
  } finally {
    clearInterval(idle)
    clearTimeout(deadline)
  }
}

/** Without a key there is still a model: one that says in every answer that it is offline. */
async function connectModel({ model }: Config, closers: (() => unknown)[]): Promise<ModelUpstream> {
  if (model.kind === 'anthropic') return model
  const offline = await startMessagesApi({ script: offlineScript, keepRequests: 0 })
  closers.push(() => offline.close())
  return { baseUrl: offline.url }
}

/** A host user for each sandbox, which only root can give. */
const isRoot = process.getuid?.() === 0
const canSwitchUsers = (provider: SandboxProvider) => provider.isolation !== 'none' && isRoot

/** Asked before each start of a sandbox, until this machine has once been found fit. */
function sandboxingCheck(provider: SandboxProvider, folders: string[]): () => Promise<void> {
  let isFit = false
  return async () => {
    if (isFit) return
    await provider.check()
    if (canSwitchUsers(provider)) for (const folder of folders) await assertReachable(folder)
    isFit = true
  }
}

function urlOf({ address, family, port }: AddressInfo): string {
  const host =
    address === '0.0.0.0' || address === '::' ? 'localhost' : family === 'IPv6' ? `[${address}]` : address
  return `http://${host}:${port}`
}
