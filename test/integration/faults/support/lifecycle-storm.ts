import { AshConnectionError, isAshError } from '@ash-ai/sdk'
import { expect } from 'vitest'
import type { TestServer } from '../../support/test-server.ts'
import type { Random } from './random.ts'
import type { Restarts } from './restarts.ts'

/** Why a request may be refused while others do as they like: never for a reason without a name. */
const REFUSALS = ['pool_full', 'session_conflict', 'turn_in_progress'] as const

interface StormSession {
  id: string
  /** Files that were acknowledged, by path. */
  written: Map<string, string>
}

/**
 * Clients that use, pause, stop, resume, save and fork the same few sessions for a while, each on its own. What one
 * was told is there must be there for all.
 */
export class Storm {
  readonly #server: TestServer
  readonly #restarts: Restarts | undefined
  readonly #sessions: StormSession[] = []
  readonly counts = new Map<string, number>()

  /** With `restarts` the server may be killed at any time. */
  static async create(server: TestServer, count: number, restarts?: Restarts): Promise<Storm> {
    const storm = new Storm(server, restarts)
    for (let index = 0; index < count; index++) {
      const { id } = await server.client.sessions.create({ agent: 'zebra' })
      storm.#sessions.push({ id, written: new Map() })
    }
    return storm
  }

  private constructor(server: TestServer, restarts: Restarts | undefined) {
    this.#server = server
    this.#restarts = restarts
  }

  async runClient(name: string, random: Random, untilMs: number): Promise<void> {
    for (let step = 0; performance.now() < untilMs; step++) {
      const session = this.#sessions[random.below(this.#sessions.length)]
      const action = ACTIONS[random.below(ACTIONS.length)]
      if (!session || !action) throw new Error('nothing to do')
      await this.#restarts?.up()
      const outcome = await this.#act(action, session, `${name}-${step}`, random)
      this.counts.set(outcome, (this.counts.get(outcome) ?? 0) + 1)
    }
  }

  /** Says how it went. */
  async #act(action: Action, session: StormSession, mark: string, random: Random): Promise<string> {
    try {
      await action({ client: this.#server.client, session, mark, random })
      return action.name
    } catch (error) {
      const refusal = REFUSALS.find((code) => isAshError(error, code))
      if (refusal !== undefined) return refusal
      if (this.#restarts !== undefined && isCutOff(error)) return 'cut off'
      throw error
    }
  }

  /** All of it, in every session: nothing that was acknowledged is missing. */
  async expectFiles(): Promise<void> {
    const { client } = this.#server
    for (const { id, written } of this.#sessions) {
      const { stdout } = await client.sessions.exec(id, { command: 'grep -r "" w | sort' })
      const expected = [...written].map(([path, content]) => `${path}:${content}`)
      expect(stdout.split('\n')).toEqual(expect.arrayContaining(expected))
    }
  }
}

const isCutOff = (error: unknown) => error instanceof AshConnectionError || isAshError(error, 'interrupted')

interface Act {
  client: TestServer['client']
  session: StormSession
  mark: string
  random: Random
}

type Action = (act: Act) => Promise<unknown>

const ACTIONS: Action[] = [
  async function exec({ client, session: { id, written }, mark }) {
    const path = `w/${mark}`
    const command = `mkdir -p w; echo by exec > ${path}; cat ${path}`
    const { stdout, exitCode } = await client.sessions.exec(id, { command })
    expect({ stdout, exitCode }).toEqual({ stdout: 'by exec\n', exitCode: 0 })
    written.set(path, 'by exec')
  },
  async function write({ client, session: { id, written }, mark }) {
    const path = `w/${mark}`
    await client.files.write(id, path, `by file ${mark}\n`)
    written.set(path, `by file ${mark}`)
  },
  async function read({ client, session: { id, written }, random }) {
    const all = [...written]
    const known = all[random.below(all.length)]
    if (known) expect(await client.files.readText(id, known[0])).toBe(`${known[1]}\n`)
  },
  async function turn({ client, session: { id }, mark }) {
    const turn = JSON.stringify({ mark, pieces: 2, pieceChars: 40, paceMs: 1 })
    expect(await client.sessions.send(id, turn).text()).toContain(mark)
  },
  async function pause({ client, session: { id } }) {
    await client.sessions.pause(id)
  },
  async function stop({ client, session: { id } }) {
    await client.sessions.stop(id)
  },
  async function resume({ client, session: { id } }) {
    await client.sessions.resume(id)
  },
  async function save({ client, session: { id } }) {
    await client.checkpoints.create(id)
  },
  async function collectGarbage({ client }) {
    await client.gc()
  },
  async function fork({ client, session: { id, written }, random }) {
    const before = [...written]
    const known = before[random.below(before.length)]
    const fork = await client.sessions.fork(id)
    try {
      if (known) expect(await client.files.readText(fork.id, known[0])).toBe(`${known[1]}\n`)
    } finally {
      await client.sessions.end(fork.id).catch(() => {}) // Whatever is left is ended with the storm.
    }
  },
]
