import type {
  CheckpointStore,
  DiskBackend,
  PriceTable,
  RemoteStore,
  SandboxPool,
  SandboxProvider,
} from '@ash-ai/sandbox'
import type { Limits } from '@ash-ai/shared'
import type { FastifyBaseLogger } from 'fastify'
import type { InstallHost } from '../agents/agent-install.ts'
import type { AgentLayers } from '../agents/agent-layers.ts'
import type { OutsideWrites } from '../checkpoints/outside-writes.ts'
import type { Uploads } from '../checkpoints/uploads.ts'
import type { Db } from '../db/open-db.ts'
import type { SecretBox } from '../db/secret-box.ts'
import type { PackageInstalls } from '../packages/package-installs.ts'
import type { WarmSpares } from '../sandboxes/warm-spares.ts'
import type { EventLogs } from './event-log.ts'
import type { LiveSessions } from './live-sessions.ts'
import type { WaitingTurns } from './queued-turns.ts'
import type { SendsUnderWay } from './send-message.ts'
import type { SessionMetrics } from './session-metrics.ts'

/** What the session functions use; `main.ts` builds it once. */
export interface SessionDeps {
  db: Db
  secrets: SecretBox
  dataDir: string
  /** This host: owns the sessions it makes. */
  hostId: string
  pool: SandboxPool
  provider: SandboxProvider
  disk: DiskBackend
  /** Throws, with what to do, where this machine cannot isolate. */
  assertSandboxing: () => Promise<void>
  /** Host users for sandboxes; undefined where the server cannot switch users. */
  sandboxUids: { base: number; count: number } | undefined
  turnTimeoutMs: number
  /** How long the agent waits for an answer, where nothing else is configured. */
  permissionTimeoutMs: number
  /** How large the log of a session may grow. */
  maxLogChars: number
  /** Logs the hops of each turn. */
  debugTiming: boolean
  prices: PriceTable
  install: InstallHost
  /** Undefined under a provider whose sandboxes see the host's paths: what is installed in one works in no other. */
  layers: AgentLayers | undefined
  checkpoints: CheckpointStore
  /** Where checkpoints are kept beside this host, if anywhere. */
  remote: RemoteStore | undefined
  uploads: Uploads | undefined
  writes: OutsideWrites
  spares: WarmSpares
  /**
   * How many checkpoints, and for how long, a session keeps that says nothing itself; and how long sessions for one run
   * are kept when they have ended.
   */
  retention: { checkpoints: number; days?: number; sessionDays: number }
  /** A session that does nothing for this long keeps no process. */
  idleTimeoutMs: number
  /** The same for sessions without an agent, and after how long they get another sandbox. */
  codeIdleTimeoutMs: number
  codeLifetimeMs: number
  /** Sandboxes kept ready for an agent that says nothing itself. */
  warmSpares: number
  /** Default and ceiling of what a sandbox may use. */
  limits: Limits
  log: FastifyBaseLogger
  metrics: SessionMetrics
  logs: EventLogs
  live: LiveSessions
  waiting: WaitingTurns
  sends: SendsUnderWay
  installs: PackageInstalls
  /** Ends what runs for a session that has no sandbox of its own. Set by whoever runs executions. */
  cancelRuns?: (sessionId: string, reason: string) => Promise<void>
}
