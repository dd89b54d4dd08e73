import type { Budget, Sandbox } from '@ash-ai/sandbox'
import { type AgentOptions, AshError } from '@ash-ai/shared'
import type { EventLog } from './event-log.ts'
import type { PendingPermissions } from './pending-permissions.ts'
import type { Fence } from './session-queries.ts'
import type { TurnTiming } from './turn-timing.ts'

/** A session that has a sandbox in this process. */
export interface LiveSession {
  fence: Fence
  sandbox: Sandbox
  budget: Budget
  log: EventLog
  /** Options of the agent and, over them, of the session. */
  options: AgentOptions
  sdkSessionId: string | null
  lastNotedMs: number
  keysForgottenMs: number
  /** The turn under way. Set before anything is awaited, so that there is never a second. */
  turn: Turn | undefined
  permissions: PendingPermissions
  /** Settles when the sandbox has ended and it is settled what became of the session. */
  gone: Promise<void>
}

export interface Turn {
  id: string
  /** Settles, without error, when the turn's last entry is durable. */
  ended: Promise<void>
  timing: TurnTiming
  /** The agent has it. */
  isSent: boolean
  isInterrupted: boolean
}

/**
 * The sessions with a sandbox in this process. Changes of one session (wake, pause, end) happen one after
 * another; callers that want it awake at the same time share one start.
 */
export class LiveSessions {
  readonly #live = new Map<string, LiveSession>()
  readonly #waking = new Map<string, Promise<LiveSession>>()
  readonly #queues = new Map<string, Promise<unknown>>()
  /** Taken out, but what became of the session is not stored yet. */
  readonly #leaving = new Map<string, Promise<void>>()
  #isClosed = false

  /** The server is stopping. */
  get isClosed(): boolean {
    return this.#isClosed
  }

  get(sessionId: string): LiveSession | undefined {
    return this.#live.get(sessionId)
  }

  /** The live session, started with `start` if there is none. */
  wake(sessionId: string, start: () => Promise<LiveSession>): Promise<LiveSession> {
    if (this.#isClosed) return Promise.reject(serverStopping())
    const live = this.#live.get(sessionId)
    if (live && !live.sandbox.bridge.isClosed) return Promise.resolve(live)
    const waking = this.#waking.get(sessionId) ?? this.#start(sessionId, start)
    this.#waking.set(sessionId, waking)
    return waking
  }

  /** Runs `change` when no other change of the session is under way. */
  async exclusive<Result>(sessionId: string, change: () => Promise<Result>): Promise<Result> {
    const before = this.#queues.get(sessionId) ?? Promise.resolve()
    const result = before.then(change, change)
    this.#queues.set(sessionId, result)
    try {
      return await result
    } finally {
      if (this.#queues.get(sessionId) === result) this.#queues.delete(sessionId)
    }
  }

  /** Takes the session out, if it is this one. Whoever gets `true` is the one to say what became of it. */
  release(live: LiveSession): boolean {
    const { sessionId } = live.fence
    if (this.#live.get(sessionId) !== live) return false
    this.#live.delete(sessionId)
    this.#leaving.set(sessionId, live.gone)
    const forget = () => {
      if (this.#leaving.get(sessionId) === live.gone) this.#leaving.delete(sessionId)
    }
    live.gone.then(forget, forget)
    return true
  }

  /** No session wakes up any more. Resolves with those that are awake. */
  async close(): Promise<LiveSession[]> {
    this.#isClosed = true
    await Promise.allSettled(this.#waking.values())
    return [...this.#live.values()]
  }

  async #start(sessionId: string, start: () => Promise<LiveSession>): Promise<LiveSession> {
    try {
      return await this.exclusive(sessionId, async () => {
        if (this.#isClosed) throw serverStopping()
        // A sandbox that has just died is still being cleared away.
        await (this.#live.get(sessionId)?.gone ?? this.#leaving.get(sessionId))
        const live = await start()
        this.#live.set(sessionId, live)
        return live
      })
    } finally {
      this.#waking.delete(sessionId)
    }
  }
}

const serverStopping = () =>
  new AshError('server_stopping', 'The server is shutting down', { retryAfterSeconds: 5 })
