import type { Budget, Sandbox } from '@ash-ai/sandbox'
import { type AgentOptions, AshError, type ResumePath, type SessionMode } from '@ash-ai/shared'
import type { EventLog } from './event-log.ts'
import type { PendingPermissions } from './pending-permissions.ts'
import type { SessionDeps } from './session-deps.ts'
import type { Fence } from './session-queries.ts'
import type { TurnTiming } from './turn-timing.ts'

/** Code that runs in a session, or waits to. */
interface RunningExecutions {
  /** Resolves when each has its end, which says why. */
  cancelAll(reason: string): Promise<void>
  readonly size: number
}

/** A session that has a sandbox in this process. */
export interface LiveSession {
  fence: Fence
  sandbox: Sandbox
  budget: Budget
  log: EventLog
  /** Options of the agent and, over them, of the session. */
  options: AgentOptions
  /** False: it runs code only. */
  hasAgent: boolean
  mode: SessionMode
  sdkSessionId: string | null
  lastNotedMs: number
  keysForgottenMs: number
  /** The turn under way. Set before anything is awaited, so that there is never a second. */
  turn: Turn | undefined
  /** Set when code is first run in it. */
  executions: RunningExecutions | undefined
  permissions: PendingPermissions
  /** How it became active the last time. */
  cameBy: ResumePath
  /** Calls that use the sandbox at this moment, beside the turn. */
  uses: number
  lastUsedMs: number
  /** When it got this sandbox. */
  startedMs: number
  /** Without work for so long, it keeps no process. */
  idleTimeoutMs: number
  /** After so long its sandbox is given up when it has nothing to do. */
  lifetimeMs: number
  /** Bytes of its network when that was last looked at. */
  seenTraffic: number
  /** Its sandbox is frozen until somebody needs it. */
  isPaused: boolean
  /** It is being paused or evicted: whoever wants it awake waits until that is over. */
  isLeaving: boolean
  /** What sends away those who use it for as long as they look: nothing should wait for them. */
  guests: Set<() => void>
  /** Cuts the wait for its turn short, for whoever cannot wait. */
  hurry: AbortController
  /** Checkpoints are saved after each turn, not only when it pauses. */
  savesTurns: boolean
  /** The checkpoint being saved; settles without error. The next turn waits for it. */
  saving: Promise<unknown> | undefined
  /** That it is awake again is being stored; settles without error. Every other change waits for it. */
  storing: Promise<void> | undefined
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

  all(): LiveSession[] {
    return [...this.#live.values()]
  }

  /** The live session that can be used at once, if there is one. */
  awake(sessionId: string): LiveSession | undefined {
    if (this.#isClosed) throw serverStopping()
    const live = this.#live.get(sessionId)
    return live && isAwake(live) ? live : undefined
  }

  /** The live session, thawed with `thaw` if its sandbox is frozen, started with `start` if there is none. */
  async wake(
    sessionId: string,
    start: () => Promise<LiveSession>,
    thaw: (live: LiveSession) => Promise<void>,
  ): Promise<LiveSession> {
    const live = this.awake(sessionId)
    if (live) return live
    const waking = this.#waking.get(sessionId) ?? this.#start(sessionId, start, thaw)
    this.#waking.set(sessionId, waking)
    return waking
  }

  /** Runs `change` when no other change of the session is under way. */
  async exclusive<Result>(sessionId: string, change: () => Promise<Result>): Promise<Result> {
    const before = this.#queues.get(sessionId) ?? Promise.resolve()
    const changeStored = async () => {
      await storedInTime(this.#live.get(sessionId))
      return change()
    }
    const result = before.then(changeStored, changeStored)
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

  async #start(
    sessionId: string,
    start: () => Promise<LiveSession>,
    thaw: (live: LiveSession) => Promise<void>,
  ): Promise<LiveSession> {
    try {
      return await this.exclusive(sessionId, async () => {
        const present = this.awake(sessionId) ?? this.#live.get(sessionId)
        if (present && !present.sandbox.bridge.isClosed) {
          if (!isAwake(present)) await thaw(present)
          return present
        }
        // A sandbox that has just died is still being cleared away.
        await (this.#live.get(sessionId)?.gone ?? this.#leaving.get(sessionId))
        const started = await start()
        this.#live.set(sessionId, started)
        return started
      })
    } finally {
      this.#waking.delete(sessionId)
    }
  }
}

/** From here on whoever wants the session awake waits, and its guests are sent away. */
export function beginLeaving(live: LiveSession): void {
  live.isLeaving = true
  for (const sendAway of live.guests) sendAway()
}

/** For work that has no end of its own: `sendAway` is called when the session is to be paused or ended. */
export async function asGuest(
  live: LiveSession,
  sendAway: () => void,
  work: () => Promise<void>,
): Promise<void> {
  live.guests.add(sendAway)
  try {
    const done = work()
    // Since before the guest came.
    if (live.isLeaving) sendAway()
    await done
  } finally {
    live.guests.delete(sendAway)
  }
}

/** Work is in flight, or waits. */
export const isBusy = ({ waiting }: Pick<SessionDeps, 'waiting'>, live: LiveSession) =>
  live.turn !== undefined || live.uses > 0 || waiting.has(live.fence.sessionId)

/** Tells the pool what the session is at; called whenever that may have changed. */
export function noteUse(deps: Pick<SessionDeps, 'waiting' | 'pool'>, live: LiveSession): void {
  live.lastUsedMs = performance.now()
  deps.pool.setState(live.sandbox.id, isBusy(deps, live) ? 'running' : 'waiting')
}

/** It can be used at once. */
export const isAwake = ({ sandbox, isPaused, isLeaving }: LiveSession) =>
  !sandbox.bridge.isClosed && !isPaused && !isLeaving

const STORE_WAIT_MS = 10_000

/** Throws where the database has not taken it for long. */
export async function storedInTime(live: LiveSession | undefined): Promise<void> {
  if (live?.storing === undefined) return
  const { promise: late, reject } = Promise.withResolvers<never>()
  const error = () => new AshError('internal_error', 'The database takes no writes. Try again later.')
  const timer = setTimeout(() => reject(error()), STORE_WAIT_MS)
  try {
    await Promise.race([live.storing, late])
  } finally {
    clearTimeout(timer)
  }
}

const serverStopping = () =>
  new AshError('server_stopping', 'The server is shutting down', { retryAfterSeconds: 5 })
