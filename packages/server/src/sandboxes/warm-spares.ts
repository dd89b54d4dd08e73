import { randomInt } from 'node:crypto'
import { setImmediate as yieldToOthers } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { sessionDirs } from '@ash-ai/sandbox'
import { AshError, type Language, type Limits } from '@ash-ai/shared'
import type { FastifyBaseLogger } from 'fastify'
import type { Blueprint } from '../agents/blueprint.ts'
import type { Db } from '../db/open-db.ts'
import { isUidTaken } from './sandbox-rows.ts'
import {
  hasItsLayer,
  prepareSpare,
  prepareSpareInterpreter,
  type Spare,
  type SpareDeps,
  type SpareInterpreter,
  type SpareRequest,
} from './spare.ts'
import type { SpareKind, SparePlan, WarmCount } from './spare-plans.ts'

const UID_TRIES = 50
const FIRST_RETRY_MS = 1_000
const LAST_RETRY_MS = 60_000

interface WarmDeps extends SpareDeps {
  db: Db
  hostId: string
  /** Host users for sandboxes; undefined where the server cannot switch users. */
  sandboxUids: { base: number; count: number } | undefined
  /** What spares of a kind are now; undefined where none are to be kept. */
  findPlan: (kind: SpareKind) => Promise<SparePlan | undefined>
  log: FastifyBaseLogger
}

type AnySpare = Spare | SpareInterpreter

/** What makes a spare of each kind. */
const PREPARE: Record<SpareKind['of'], (deps: SpareDeps, request: SpareRequest) => Promise<AnySpare>> = {
  agent: prepareSpare,
  persistent: prepareSpare,
  ephemeral: prepareSpareInterpreter,
}

/** A spare that nobody has claimed. */
interface Held extends SpareKind {
  fingerprint: string
  limits: Limits
  /** Whose interpreter is up in it. */
  language: Language
  spare: AnySpare
}

interface Claim {
  kind: SpareKind
  blueprint: Blueprint
  /** In force for the session: a spare has those of its agent or template. */
  limits: Limits
}

/**
 * Sandboxes that wait for a session of the newest version of their agent, or of their template. They are prepared one
 * after the other, only where the pool has a slot that nobody needs, and make room for any session.
 */
export class WarmSpares {
  readonly #deps: WarmDeps
  readonly #held = new Set<Held>()
  /** Host users of spares, until their files are gone or a session has them. */
  readonly #uids = new Set<number>()
  readonly #discarding = new WeakSet<AnySpare>()
  readonly #wanted = new Map<string, SpareKind>()
  /** When a kind that is kept only while it is used was used last. */
  readonly #lastUse = new Map<string, number>()
  readonly #idleChecks = new Map<string, NodeJS.Timeout>()
  /** Of kinds that could not be had: how long they wait, until a session has shown that they can. */
  readonly #waitMs = new Map<string, number>()
  readonly #retries = new Map<string, NodeJS.Timeout>()
  #working: Promise<void> | undefined
  #isClosed = false

  constructor(deps: WarmDeps) {
    this.#deps = deps
  }

  /** Takes a spare that is as a new session of this blueprint would be. It is the caller's, to use or to discard. */
  claim(wanted: Claim): Spare | undefined {
    return this.#take(wanted, (spare) => 'budget' in spare)
  }

  /** The same for a single run. */
  claimInterpreter(wanted: Claim, language: Language): SpareInterpreter | undefined {
    return this.#take(wanted, (spare) => isInterpreter(spare, language))
  }

  #take<Kind extends AnySpare>(wanted: Claim, fits: (spare: AnySpare) => spare is Kind): Kind | undefined {
    for (const held of this.#heldOf(wanted.kind)) {
      const { spare } = held
      if (!fits(spare) || !isLike(held, wanted.blueprint, wanted.limits)) continue
      this.#held.delete(held)
      this.#waitMs.delete(keyOf(held))
      void spare.sandbox.exited.then(() => this.#freeUid(spare))
      return spare
    }
    return undefined
  }

  /** How many there are to claim; of interpreters, for this language. */
  count({ kind, blueprint, limits }: Claim, language?: Language): number {
    return this.#heldOf(kind).filter(
      (held) =>
        isLike(held, blueprint, limits) && (language === undefined || isInterpreter(held.spare, language)),
    ).length
  }

  /** Stops a spare that was claimed and cannot be used, and removes its files. */
  async discard(spare: AnySpare): Promise<void> {
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

  /** A session of this kind was made: what is kept while it is used is wanted now, and a claimed spare replaced. */
  noteUse(kind: SpareKind, warm: WarmCount): void {
    if (Math.max(warm.min, warm.target) === 0 && this.#heldOf(kind).length === 0) return
    if (warm.target > warm.min) this.#lastUse.set(keyOf(kind), performance.now())
    this.refill(kind)
  }

  /** Prepares in the background what is missing of the kind as it is now, and drops what is older or too much. */
  refill(kind: SpareKind): void {
    if (this.#isClosed || this.#retries.has(keyOf(kind))) return
    this.#wanted.set(keyOf(kind), kind)
    this.#wake()
  }

  /** The agent or template is another now: what the last one could not have, this one need not wait for. */
  renew(kind: SpareKind): void {
    const key = keyOf(kind)
    this.#waitMs.delete(key)
    this.#stopRetrying(key)
    this.refill(kind)
  }

  /** The agent or template is gone. */
  async forget(kind: SpareKind): Promise<void> {
    const key = keyOf(kind)
    this.#wanted.delete(key)
    this.#waitMs.delete(key)
    this.#stopRetrying(key)
    this.#forgetUse(key)
    await this.#dropAll(this.#heldOf(kind))
  }

  /** Stops what waits, and what is being prepared. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#wanted.clear()
    for (const key of [...this.#retries.keys()]) this.#stopRetrying(key)
    for (const key of [...this.#idleChecks.keys()]) this.#forgetUse(key)
    await this.#working
    await this.#dropAll([...this.#held])
  }

  #freeUid(spare: AnySpare): void {
    if (spare.uid !== null && !this.#discarding.has(spare)) this.#uids.delete(spare.uid)
  }

  #heldOf(kind: SpareKind): Held[] {
    return [...this.#held].filter((held) => keyOf(held) === keyOf(kind))
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

  async #fill(kind: SpareKind): Promise<void> {
    // What has just died is replaced later, not at once.
    while (!this.#isClosed && !this.#retries.has(keyOf(kind))) {
      // Asked each time: it may have been changed, or deleted, while the last one was prepared.
      const plan = await this.#deps.findPlan(kind)
      const count = plan ? this.#countNow(kind, plan.warm) : 0
      const alike = this.#heldOf(kind).filter((held) => plan && isAsPlanned(held, plan))
      const kept = new Set(alike.slice(0, count))
      await this.#dropAll(this.#heldOf(kind).filter((held) => !kept.has(held)))
      if (!plan || this.#heldOf(kind).length >= count) return
      if (!(await hasItsLayer(this.#deps, kind.tenantId, plan.blueprint))) return
      await this.#prepare(kind, plan)
      await yieldToOthers()
    }
  }

  /** How many there should be, which time may lessen: then it is looked at again. */
  #countNow(kind: SpareKind, { min, target, idle }: WarmCount): number {
    const key = keyOf(kind)
    const usedAt = this.#lastUse.get(key)
    if (target <= min || usedAt === undefined) return min
    const leftMs = usedAt + idle - performance.now()
    if (leftMs <= 0) {
      this.#forgetUse(key)
      return min
    }
    clearTimeout(this.#idleChecks.get(key))
    this.#idleChecks.set(key, setTimeout(() => this.refill(kind), leftMs + 1).unref())
    return target
  }

  #forgetUse(key: string): void {
    this.#lastUse.delete(key)
    clearTimeout(this.#idleChecks.get(key))
    this.#idleChecks.delete(key)
  }

  async #prepare(kind: SpareKind, { blueprint, limits, language }: SparePlan): Promise<void> {
    const { tenantId } = kind
    const uid = await this.#takeUid()
    let held: Held | undefined
    const evict = async () => {
      if (held === undefined || !(await this.#drop(held))) return false
      // Not every session that takes a slot asks for spares afterwards.
      this.#retryLater(kind, new Error('a session needed its slot'))
      return true
    }
    try {
      const spare = await PREPARE[kind.of](this.#deps, { tenantId, blueprint, language, limits, uid, evict })
      held = { ...kind, fingerprint: blueprint.fingerprint, limits, language, spare }
    } catch (error) {
      if (uid !== null) this.#uids.delete(uid)
      throw error
    }
    this.#held.add(held)
    this.#watch(held)
  }

  /** A spare that ends before anybody wanted it is replaced, though not in a loop. */
  #watch(held: Held): void {
    void held.spare.sandbox.exited.then((exit: unknown) => {
      if (!this.#held.delete(held)) return
      void this.#discardQuietly(held)
      this.#retryLater(held, new Error(`a spare sandbox ended: ${lastWords(exit) || 'it said nothing'}`))
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

  #retryLater({ tenantId, of, name }: SpareKind, error: unknown): void {
    const kind = { tenantId, of, name }
    const key = keyOf(kind)
    if (this.#isClosed || this.#retries.has(key)) return
    const before = this.#waitMs.get(key)
    // Told once: what fails now fails the same way the next time.
    if (before === undefined)
      this.#deps.log.warn({ err: error, of, name }, 'a spare sandbox could not be kept ready')
    const waitMs = before === undefined ? FIRST_RETRY_MS : Math.min(before * 2, LAST_RETRY_MS)
    this.#waitMs.set(key, waitMs)
    const retry = () => {
      this.#retries.delete(key)
      this.#wanted.set(key, kind)
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

const keyOf = ({ tenantId, of, name }: SpareKind) => JSON.stringify([tenantId, of, name])

const isLike = (held: Held, { fingerprint }: Blueprint, limits: Limits) =>
  held.fingerprint === fingerprint && isDeepStrictEqual(held.limits, limits)

/** Of an agent no interpreter is up. */
const isAsPlanned = (held: Held, { blueprint, limits, language }: SparePlan) =>
  isLike(held, blueprint, limits) && (held.of === 'agent' || held.language === language)

const isInterpreter = (spare: AnySpare, language: Language): spare is SpareInterpreter =>
  !('budget' in spare) && spare.sandbox.language === language

const lastWords = (exit: unknown) =>
  typeof exit === 'object' && exit !== null && 'stderr' in exit ? String(exit.stderr).trim() : ''
