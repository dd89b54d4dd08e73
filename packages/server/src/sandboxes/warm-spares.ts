import { randomInt } from 'node:crypto'
import { setImmediate as yieldToOthers } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { sessionDirs } from '@ash-ai/sandbox'
import { AshError, isAshError, type Limits } from '@ash-ai/shared'
import type { FastifyBaseLogger } from 'fastify'
import type { AgentForSession } from '../agents/agent-queries.ts'
import type { Db } from '../db/open-db.ts'
import { effectiveLimits } from '../sessions/effective-limits.ts'
import { isUidTaken } from './sandbox-rows.ts'
import { hasItsLayer, prepareSpare, type Spare, type SpareDeps } from './spare.ts'

const UID_TRIES = 50
const FIRST_RETRY_MS = 1_000
const LAST_RETRY_MS = 60_000

interface WarmDeps extends SpareDeps {
  db: Db
  hostId: string
  /** Host users for sandboxes; undefined where the server cannot switch users. */
  sandboxUids: { base: number; count: number } | undefined
  /** Default and ceiling of what a sandbox may use. */
  limits: Limits
  /** For agents that say nothing themselves. */
  warmSpares: number
  /** The newest version. Throws `agent_not_found`. */
  getAgent: (tenantId: string, name: string) => Promise<AgentForSession>
  log: FastifyBaseLogger
}

/** Of which agent spares are kept. */
interface Kind {
  tenantId: string
  name: string
}

/** A spare that nobody has claimed. */
interface Held extends Kind {
  fingerprint: string
  limits: Limits
  spare: Spare
}

interface Claim {
  tenantId: string
  agent: AgentForSession
  /** In force for the session: a spare has those of its agent. */
  limits: Limits
}

/**
 * Sandboxes that wait for a session of the newest version of their agent. They are prepared one after the other,
 * only where the pool has a slot that nobody needs, and make room for any session.
 */
export class WarmSpares {
  readonly #deps: WarmDeps
  readonly #held = new Set<Held>()
  /** Host users of spares, until their files are gone or a session has them. */
  readonly #uids = new Set<number>()
  readonly #discarding = new WeakSet<Spare>()
  readonly #wanted = new Map<string, Kind>()
  /** Of kinds that could not be had: how long they wait, until a session has shown that they can. */
  readonly #waitMs = new Map<string, number>()
  readonly #retries = new Map<string, NodeJS.Timeout>()
  #working: Promise<void> | undefined
  #isClosed = false

  constructor(deps: WarmDeps) {
    this.#deps = deps
  }

  /** Takes a spare that is as a new session of this agent would be. It is the caller's, to use or to discard. */
  claim({ tenantId, agent, limits }: Claim): Spare | undefined {
    for (const held of this.#held) {
      if (held.tenantId !== tenantId || held.fingerprint !== agent.fingerprint) continue
      if (!isDeepStrictEqual(held.limits, limits)) continue
      this.#held.delete(held)
      this.#waitMs.delete(keyOf(held))
      void held.spare.sandbox.exited.then(() => this.#freeUid(held.spare))
      return held.spare
    }
    return undefined
  }

  /** Stops a spare that was claimed and cannot be used, and removes its files. */
  async discard(spare: Spare): Promise<void> {
    this.#discarding.add(spare)
    await spare.sandbox.stop()
    await spare.sandbox.exited
    await this.#deps.disk.remove(sessionDirs(this.#deps.dataDir, spare.sessionId))
    // Only now: nothing on disk belongs to it any more.
    this.#discarding.delete(spare)
    this.#freeUid(spare)
  }

  /** Whether a spare has this host user, which a new session must then not get. */
  usesUid(uid: number): boolean {
    return this.#uids.has(uid)
  }

  /** Prepares in the background what is missing of the agent's newest version, and drops what is older. */
  refill(tenantId: string, { name, warm }: Pick<AgentForSession, 'name' | 'warm'>): void {
    const kind = { tenantId, name }
    const isNone = (warm ?? this.#deps.warmSpares) === 0 && this.#heldOf(kind).length === 0
    if (this.#isClosed || isNone || this.#retries.has(keyOf(kind))) return
    this.#wanted.set(keyOf(kind), kind)
    this.#wake()
  }

  /** The agent is deployed anew: what the last version could not have, this one need not wait for. */
  renew(tenantId: string, agent: Pick<AgentForSession, 'name' | 'warm'>): void {
    const key = keyOf({ tenantId, name: agent.name })
    this.#waitMs.delete(key)
    this.#stopRetrying(key)
    this.refill(tenantId, agent)
  }

  /** The agent is gone. */
  async forget(tenantId: string, name: string): Promise<void> {
    const kind = { tenantId, name }
    this.#wanted.delete(keyOf(kind))
    this.#waitMs.delete(keyOf(kind))
    this.#stopRetrying(keyOf(kind))
    await this.#dropAll(this.#heldOf(kind))
  }

  /** Stops what waits, and what is being prepared. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#wanted.clear()
    for (const key of [...this.#retries.keys()]) this.#stopRetrying(key)
    await this.#working
    await this.#dropAll([...this.#held])
  }

  #freeUid(spare: Spare): void {
    if (spare.uid !== null && !this.#discarding.has(spare)) this.#uids.delete(spare.uid)
  }

  #heldOf({ tenantId, name }: Kind): Held[] {
    return [...this.#held].filter((held) => held.tenantId === tenantId && held.name === name)
  }

  #wake(): void {
    if (this.#working !== undefined || this.#wanted.size === 0) return
    this.#working = this.#work().finally(() => {
      this.#working = undefined
      this.#wake()
    })
  }

  /** One at a time, and whatever else there is to do comes first. */
  async #work(): Promise<void> {
    for (const [key, kind] of this.#wanted) {
      await yieldToOthers()
      this.#wanted.delete(key)
      await this.#fill(kind).catch((error: unknown) => this.#retryLater(kind, error))
    }
  }

  async #fill(kind: Kind): Promise<void> {
    // What has just died is replaced later, not at once.
    while (!this.#isClosed && !this.#retries.has(keyOf(kind))) {
      // Asked each time: it may have been deployed anew, or deleted, while the last one was prepared.
      const agent = await this.#findAgent(kind)
      const held = this.#heldOf(kind)
      await this.#dropAll(held.filter(({ fingerprint }) => fingerprint !== agent?.fingerprint))
      if (!agent || this.#heldOf(kind).length >= (agent.warm ?? this.#deps.warmSpares)) return
      if (!(await hasItsLayer(this.#deps, kind.tenantId, agent))) return
      await this.#prepare(kind, agent)
      await yieldToOthers()
    }
  }

  async #findAgent({ tenantId, name }: Kind): Promise<AgentForSession | undefined> {
    try {
      return await this.#deps.getAgent(tenantId, name)
    } catch (error) {
      if (isAshError(error, 'agent_not_found')) return undefined
      throw error
    }
  }

  async #prepare(kind: Kind, agent: AgentForSession): Promise<void> {
    const { tenantId } = kind
    const limits = effectiveLimits(this.#deps.limits, agent.config.limits)
    const uid = await this.#takeUid()
    let held: Held | undefined
    const evict = async () => {
      if (held === undefined || !(await this.#drop(held))) return false
      // Not every session that takes a slot asks for spares afterwards.
      this.#retryLater(kind, new Error('a session needed its slot'))
      return true
    }
    try {
      const spare = await prepareSpare(this.#deps, { tenantId, agent, limits, uid, evict })
      held = { ...kind, fingerprint: agent.fingerprint, limits, spare }
    } catch (error) {
      if (uid !== null) this.#uids.delete(uid)
      throw error
    }
    this.#held.add(held)
    this.#watch(held)
  }

  /** A spare that ends before anybody wanted it is replaced, though not in a loop. */
  #watch(held: Held): void {
    void held.spare.sandbox.exited.then(({ stderr }) => {
      if (!this.#held.delete(held)) return
      void this.#discardQuietly(held)
      this.#retryLater(held, new Error(`a spare sandbox ended: ${stderr.trim() || 'it said nothing'}`))
    })
  }

  async #dropAll(all: Held[]): Promise<void> {
    await Promise.all(all.map((held) => this.#drop(held)))
  }

  /** False where it is somebody's by now. */
  async #drop(held: Held): Promise<boolean> {
    if (!this.#held.delete(held)) return false
    await this.#discardQuietly(held)
    return true
  }

  /** What is left of it, its host user included, is cleared up by the next start of the server. */
  async #discardQuietly({ spare }: Held): Promise<void> {
    await this.discard(spare).catch((error: unknown) =>
      this.#deps.log.error(
        { err: error, sandboxId: spare.sandbox.id },
        'a spare sandbox could not be removed',
      ),
    )
  }

  #retryLater(kind: Kind, error: unknown): void {
    const key = keyOf(kind)
    if (this.#isClosed || this.#retries.has(key)) return
    const before = this.#waitMs.get(key)
    // Told once: what fails now fails the same way the next time.
    if (before === undefined)
      this.#deps.log.warn({ err: error, agent: kind.name }, 'a spare sandbox could not be kept ready')
    const waitMs = before === undefined ? FIRST_RETRY_MS : Math.min(before * 2, LAST_RETRY_MS)
    this.#waitMs.set(key, waitMs)
    const retry = () => {
      this.#retries.delete(key)
      this.#wanted.set(key, { tenantId: kind.tenantId, name: kind.name })
      this.#wake()
    }
    this.#retries.set(key, setTimeout(retry, waitMs).unref())
  }

  #stopRetrying(key: string): void {
    clearTimeout(this.#retries.get(key))
    this.#retries.delete(key)
  }

  async #takeUid(): Promise<number | null> {
    const { sandboxUids, db, hostId } = this.#deps
    if (!sandboxUids) return null
    for (let tries = 0; tries < UID_TRIES; tries++) {
      const uid = sandboxUids.base + randomInt(sandboxUids.count)
      if (this.#uids.has(uid)) continue
      // First marked, then asked: a session that is being made meanwhile sees the mark.
      this.#uids.add(uid)
      if (!(await isUidTaken(db, hostId, uid))) return uid
      this.#uids.delete(uid)
    }
    throw new AshError('pool_full', 'No host user is free for a spare sandbox. Raise ASH_SANDBOX_UID_COUNT.')
  }
}

const keyOf = ({ tenantId, name }: Kind) => JSON.stringify([tenantId, name])
