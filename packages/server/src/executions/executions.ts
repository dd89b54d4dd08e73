import { availableParallelism } from 'node:os'
import { AshError } from '@ash-ai/shared'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { ArtifactRoom } from './artifact-room.ts'
import type { ExecutionMetrics } from './execution-metrics.ts'
import type { ExecutionRow } from './execution-queries.ts'
import type { Job } from './job.ts'
import { Lane, type Place } from './lane.ts'

/** Processes of their own that run at once in a session. */
const MAX_FRESH = 10
const MAX_WAITING_FRESH = 100
const MAX_WAITING_PER_KERNEL = 32
/** Code and events of what waits, in one session and in all of them. */
const MAX_WAITING_CHARS = 64 * 1024 * 1024
const MAX_WAITING_CHARS_IN_ALL = 512 * 1024 * 1024
/** Interpreters that start at once: more would only all be late. */
const MAX_STARTING = Math.max(4, 2 * availableParallelism())

/** What the functions of executions use: sessions, and what is under way. */
export interface ExecutionDeps extends SessionDeps {
  runs: Executions
  runMetrics: ExecutionMetrics
  /** How long files that a run left are kept. */
  artifactDays: number
  /** How many bytes of them in a session. */
  maxArtifactBytes: number
}

/** Requests with a key that are being accepted: their twins wait for the same execution. */
type Accepting = Map<string, { hash: string; accepted: Promise<AcceptedExecution> }>

/** An execution that is durable. Without a job it has ended. */
export interface AcceptedExecution {
  row: ExecutionRow
  job: Job | undefined
}

/** The executions that this process has not brought to their end, and the lanes in which they run. */
export class Executions {
  readonly accepting: Accepting = new Map()
  /** Of interpreters that are sandboxes of their own. Who may wait is bounded by whoever enters. */
  readonly starts = new Lane(MAX_STARTING, Number.POSITIVE_INFINITY)
  readonly artifacts = new ArtifactRoom()
  readonly #reserved = new Set<string>()
  readonly #jobs = new Map<string, Job>()
  readonly #lanes = new Map<string, Lane>()
  readonly #cleanUps = new Set<Promise<void>>()
  #isStopping = false

  get isStopping(): boolean {
    return this.#isStopping
  }

  get waiting(): number {
    return this.all().filter(({ row }) => row.status === 'pending').length
  }

  all(): Job[] {
    return [...this.#jobs.values()]
  }

  of(sessionId: string): Job[] {
    return this.all().filter(({ row }) => row.session_id === sessionId)
  }

  find(id: string): Job | undefined {
    return this.#jobs.get(id)
  }

  add(job: Job): void {
    this.#jobs.set(job.id, job)
  }

  remove(job: Job): void {
    this.#jobs.delete(job.id)
  }

  assertRunning(): void {
    if (this.#isStopping) throw serverStopping()
  }

  /** Nothing begins any more. */
  stop(): void {
    this.#isStopping = true
  }

  /** Throws `queue_full` where so much waits already that this would be too much. */
  assertRoom(sessionId: string, size: number): void {
    const waiting = this.all().filter(({ row }) => row.status === 'pending')
    const here = waiting.filter(({ row }) => row.session_id === sessionId)
    const isFull = (jobs: Job[], max: number) =>
      jobs.length > 0 && jobs.reduce((sum, job) => sum + job.size, size) > max
    if (isFull(here, MAX_WAITING_CHARS) || isFull(waiting, MAX_WAITING_CHARS_IN_ALL))
      throw new AshError('queue_full', 'Too much code and too large events wait already; send this later')
  }

  /** Takes a place where the execution is to run. Before anything is awaited: the order of arrival is the order of runs. */
  enter(what: LaneOf, isKnown = false): Place {
    const key = laneKey(what)
    const lane =
      this.#lanes.get(key) ??
      (what.kernel === null ? new Lane(MAX_FRESH, MAX_WAITING_FRESH) : new Lane(1, MAX_WAITING_PER_KERNEL))
    const place = lane.enter(isKnown)
    this.#lanes.set(key, lane)
    const leave = () => {
      place.leave()
      // Called again, it may be another lane by now.
      if (lane.isEmpty && this.#lanes.get(key) === lane) this.#lanes.delete(key)
    }
    return { ready: place.ready, isWaiting: place.isWaiting, leave }
  }

  /** Takes a session for its only run, until that is a job. Undefined where somebody has it. */
  reserve(sessionId: string): (() => void) | undefined {
    if (this.#reserved.has(sessionId) || this.of(sessionId).length > 0) return undefined
    this.#reserved.add(sessionId)
    return () => this.#reserved.delete(sessionId)
  }

  /** How many wait for a kernel. */
  waitingFor(what: LaneOf): number {
    return this.#lanes.get(laneKey(what))?.waiting ?? 0
  }

  /** What goes on after the reply; it settles without error. */
  track(work: Promise<void>): void {
    this.#cleanUps.add(work)
    void work.finally(() => this.#cleanUps.delete(work))
  }

  /** Resolves when nothing goes on after a reply. */
  async settled(): Promise<void> {
    while (this.#cleanUps.size > 0) await Promise.all(this.#cleanUps)
  }
}

type LaneOf = Pick<ExecutionRow, 'session_id' | 'language' | 'kernel'>

const laneKey = ({ session_id, language, kernel }: LaneOf) =>
  kernel === null ? session_id : `${session_id} ${language} ${kernel}`

export const serverStopping = () =>
  new AshError('server_stopping', 'The server is shutting down', { retryAfterSeconds: 5 })
