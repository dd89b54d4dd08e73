import type { DiskBackend, PriceTable, SandboxPool, SandboxProvider } from '@ash-ai/sandbox'
import type { Limits } from '@ash-ai/shared'
import type { FastifyBaseLogger } from 'fastify'
import type { InstallHost } from '../agents/agent-install.ts'
import type { AgentLayers } from '../agents/agent-layers.ts'
import type { Db } from '../db/open-db.ts'
import type { SecretBox } from '../db/secret-box.ts'
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
  /** Default and ceiling of what a sandbox may use. */
  limits: Limits
  log: FastifyBaseLogger
  metrics: SessionMetrics
  logs: EventLogs
  live: LiveSessions
  waiting: WaitingTurns
  sends: SendsUnderWay
}
