import { stat } from 'node:fs/promises'
import { sessionDirs } from '@ash-ai/sandbox'
import { type AshClient, AshConnectionError, isAshError, type SendOptions } from '@ash-ai/sdk'
import { expect } from 'vitest'
import type { TestServer } from '../../support/test-server.ts'
import { ClientProcess } from './client-process.ts'
import {
  expectSameEntries,
  expectSameEvents,
  expectTurns,
  expectWhole,
  type SentTurn,
} from './log-invariants.ts'
import type { Random } from './random.ts'
import { RawLogReader } from './raw-log-reader.ts'
import type { Restarts } from './restarts.ts'
import type { ReadStored } from './stored-log.ts'

/** `sender` is the connection that streams the turn, `reader` one that follows the log, `client` a process. */
export type Victim = 'server' | 'bridge' | 'claude' | 'sender' | 'reader' | 'client'

export interface PlannedTurn {
  prompt: string
  /** The assistant's text, all of it. */
  answer: string
  /** How many events the turn has at least. */
  events: number
}

export interface FaultPlan {
  /** Who is killed how often, and in how many turns nobody is. */
  deck: readonly (Victim | undefined)[]
  planTurn: (random: Random, mark: string) => PlannedTurn
  readStored: ReadStored
}

const COMMANDS = { bridge: '/opt/ash/node /opt/ash/bridge', claude: '/opt/ash/claude' }

/** A session with a sender, a plain reader and a client process, one of which or whose server dies in most turns. */
export class FaultSession {
  readonly #plan: FaultPlan
  readonly #server: TestServer
  readonly #restarts: Restarts
  readonly #random: Random
  readonly #id: string
  readonly #uid: number
  readonly #client: AshClient
  readonly #reader: RawLogReader
  readonly #process: ClientProcess
  readonly #sendOptions: SendOptions
  readonly #sent: SentTurn[] = []
  #deck: (Victim | undefined)[] = []
  #strikeDone = Promise.resolve()
  /** A sandbox that was killed may spoil the turn under way and, before that is noticed, the next. */
  #spoiledTurns = 0

  static async create(
    plan: FaultPlan,
    server: TestServer,
    restarts: Restarts,
    random: Random,
  ): Promise<FaultSession> {
    const { id } = await server.client.sessions.create({ agent: 'zebra' })
    // Every session has a host user of its own, who owns its files.
    const { uid } = await stat(sessionDirs(server.dataDir, id).workspace)
    return new FaultSession(plan, server, restarts, random, { id, uid })
  }

  private constructor(
    plan: FaultPlan,
    server: TestServer,
    restarts: Restarts,
    random: Random,
    { id, uid }: { id: string; uid: number },
  ) {
    this.#plan = plan
    this.#server = server
    this.#restarts = restarts
    this.#random = random
    this.#id = id
    this.#uid = uid
    // One client for all restarts, since the port stays.
    this.#client = server.client
    const source = { url: server.url, apiKey: server.apiKey, sessionId: id }
    this.#reader = new RawLogReader(source)
    this.#process = new ClientProcess(source)
    this.#sendOptions = random.chance(0.5) ? { includePartialMessages: true } : {}
  }

  leave(): void {
    this.#reader.leave()
    this.#process.leave()
  }

  async run(turns: number): Promise<void> {
    for (let turn = 0; turn < turns; turn++) {
      await this.#restarts.up()
      await this.#runTurn(`${this.#id}-turn-${turn};`)
      await this.#strikeDone
    }
  }

  /** Ends the session and compares what everybody has read; resolves with how the turns ended. */
  async check(): Promise<string[]> {
    await this.#client.sessions.end(this.#id)
    await Promise.all([this.#reader.ended, this.#process.ended])
    const log = await this.#plan.readStored(this.#id)
    expectWhole(log)
    expectSameEntries(this.#reader.entries, log)
    expect(this.#reader.fault).toBeUndefined()
    expectSameEvents(this.#process.entries, log)
    return expectTurns(this.#sent, log)
  }

  describe(): string {
    const { entries, connections } = this.#reader
    const { entries: events, starts } = this.#process
    const last = JSON.stringify(this.#sent.at(-1)?.seen.at(-1))?.slice(0, 300)
    return `${this.#id}: ${this.#sent.length} turns, reader at ${entries.at(-1)?.seq} (${connections} connections), client at ${events.at(-1)?.id} (${starts} starts), sender at ${last}`
  }

  async #runTurn(mark: string): Promise<void> {
    const { prompt, answer, events } = this.#plan.planTurn(this.#random, mark)
    const victim = this.#draw()
    // In the first half, so that there is something left to disturb. A sender must know its turn before it leaves.
    const first = victim === 'sender' ? 1 : 0
    const strikeAfter = first + this.#random.below(Math.ceil(events / 2))
    const killsBefore = this.#restarts.kills
    const turn: SentTurn = { mark, answer, seen: [], wasDisturbed: this.#spoiledTurns > 0 }
    this.#sent.push(turn)
    const leaving = new AbortController()
    const strike = () => {
      if (!victim || turn.seen.length !== strikeAfter) return
      this.#strikeDone = this.#strike(victim, leaving)
      this.#strikeDone.catch(() => {}) // Reported after the turn.
    }
    try {
      const stream = this.#client.sessions.send(this.#id, prompt, {
        ...this.#sendOptions,
        signal: leaving.signal,
      })
      strike()
      for await (const event of stream) {
        turn.seen.push(event)
        strike()
      }
    } catch (error) {
      if (!leaving.signal.aborted && !isPassing(error)) throw error
    }
    if (leaving.signal.aborted) await this.#awaitEnd(turn)
    turn.wasDisturbed ||= this.#spoiledTurns > 0 || killsBefore !== this.#restarts.kills
    this.#spoiledTurns--
  }

  #draw(): Victim | undefined {
    if (this.#deck.length === 0) this.#deck = [...this.#plan.deck]
    return this.#deck.splice(this.#random.below(this.#deck.length), 1)[0]
  }

  async #strike(victim: Victim, leaving: AbortController): Promise<void> {
    if (victim === 'server') await this.#restarts.kill()
    else if (victim === 'sender') leaving.abort()
    else if (victim === 'reader') this.#reader.cut()
    else if (victim === 'client') this.#process.kill()
    else await this.#killInside(COMMANDS[victim])
  }

  async #killInside(command: string): Promise<void> {
    this.#spoiledTurns = 2
    for (const process of await this.#server.listSandboxProcesses()) {
      if (process.uid === this.#uid && process.command.startsWith(command)) kill(process.pid)
    }
  }

  async #awaitEnd({ seen }: SentTurn): Promise<void> {
    const begun = seen.find((event) => event.type === 'turn')
    await this.#reader.find(
      ({ type, data }) => (type === 'done' || type === 'error') && JSON.parse(data).turnId === begun?.turnId,
    )
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // Gone already: something else was quicker.
  }
}

/** What a sender may hear while the server or its sandbox is being killed: that its message may not have arrived. */
const isPassing = (error: unknown) =>
  error instanceof AshConnectionError || isAshError(error, 'sandbox_start_failed')
