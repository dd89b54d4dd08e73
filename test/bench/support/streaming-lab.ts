import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { deployTestAgent } from '../../integration/support/conversation.ts'
import { startTestServer, type TestServer } from '../../integration/support/test-server.ts'
import { bundleInstantBridge } from './instant-bridge.ts'
import type { LoadJob, LoadResult } from './load-client.ts'
import { cpuMs } from './process-usage.ts'
import type { Target } from './stream-connection.ts'

export interface Measured extends LoadResult {
  /** Processor time of the server that was asked, Ash's or the floor's. */
  serverCpuMs: number
}

/**
 * Ash and its floor side by side, with the clients of both in one more process. Ash: a real server whose bridges have
 * the instant stand-in for the agent SDK. The floor: `fastify-relay.ts`, with as many processes behind it.
 */
export class StreamingLab {
  readonly server: TestServer
  readonly sessionIds: string[] = []
  /** Where turns go, one for each session. */
  readonly ash: Target[] = []
  readonly floor: Target[] = []
  /** The same relay with Ash's bridges behind it. */
  readonly bridged: Target[] = []
  readonly #folder: string
  readonly #relay: ChildProcess
  readonly #bridgedRelay: ChildProcess
  readonly #clients: ChildProcess

  private constructor(folder: string, server: TestServer, bridge: string) {
    this.#folder = folder
    this.server = server
    this.#relay = fork(new URL('./fastify-relay.ts', import.meta.url), [folder])
    this.#bridgedRelay = fork(new URL('./fastify-relay.ts', import.meta.url), [folder, bridge])
    this.#clients = fork(new URL('./load-client.ts', import.meta.url))
  }

  static async start(sessions: number, extraEnv: Record<string, string> = {}): Promise<StreamingLab> {
    const folder = await mkdtemp(join(tmpdir(), 'ash-bench-'))
    const bridge = await bundleInstantBridge(folder)
    const env = { ASH_BRIDGE_ENTRY: bridge, ASH_LOG_LEVEL: 'info', ...extraEnv }
    const lab = new StreamingLab(folder, await startTestServer({ env }), bridge)
    try {
      await deployTestAgent(lab.server.client)
      await lab.grow(sessions)
      return lab
    } catch (error) {
      await lab.close() // A server would outlive this program.
      throw error
    }
  }

  /** Has at least so many sessions, and so many processes behind the floor. */
  async grow(sessions: number): Promise<void> {
    while (this.ash.length < sessions) {
      // What a checkpoint after each turn costs is measured by itself.
      const session = { agent: 'zebra', checkpoints: { every: 'pause' } } as const
      const { id } = await this.server.client.sessions.create(session)
      this.sessionIds.push(id)
      this.ash.push(this.target(`/api/sessions/${id}/messages`))
    }
    await growRelay(this.#relay, this.floor, sessions)
  }

  /** Has as many of Ash's bridges behind a bare relay. */
  async growBridged(sessions: number): Promise<void> {
    await growRelay(this.#bridgedRelay, this.bridged, sessions)
  }

  target(path: string): Target {
    return { url: `${this.server.url}${path}`, headers: { authorization: `Bearer ${this.server.apiKey}` } }
  }

  async load(job: LoadJob): Promise<Measured> {
    const [target] = job.targets
    const isAsh = target?.url.startsWith(this.server.url)
    const relay = this.bridged.some(({ url }) => url === target?.url) ? this.#bridgedRelay : this.#relay
    const asked = isAsh ? this.server.pid() : (relay.pid ?? 0)
    const before = await cpuMs(asked)
    this.#clients.send(job)
    const [result] = (await once(this.#clients, 'message')) as [LoadResult | { error: string }]
    if ('error' in result) throw new Error(result.error)
    return { ...result, serverCpuMs: (await cpuMs(asked)) - before }
  }

  /** Runs each job in turn, so that a busy moment of the machine meets all of them. The first round only warms up. */
  async alternate<Name extends string>(
    rounds: number,
    jobs: Record<Name, LoadJob>,
  ): Promise<Record<Name, Measured>> {
    const sums = new Map<string, Measured>()
    for (let round = 0; round <= rounds; round++) {
      for (const name of Object.keys(jobs) as Name[]) {
        const result = await this.load(jobs[name])
        if (round > 0) sums.set(name, add(sums.get(name), result))
      }
    }
    const perTurn = new Set([...sums.values()].map(({ events, turnMs }) => events / turnMs.length))
    if (perTurn.size > 1) throw new Error(`unlike numbers of events in a turn: ${[...perTurn].join(', ')}`)
    return Object.fromEntries(sums) as Record<Name, Measured>
  }

  async close(): Promise<void> {
    this.#clients.disconnect()
    this.#relay.disconnect()
    this.#bridgedRelay.disconnect()
    await this.server.close()
    await rm(this.#folder, { recursive: true, force: true })
  }
}

async function growRelay(relay: ChildProcess, targets: Target[], count: number): Promise<void> {
  relay.send(count)
  const [port] = await once(relay, 'message')
  for (let peer = targets.length; peer < count; peer++)
    targets.push({ url: `http://127.0.0.1:${port}/${peer}`, headers: {} })
}

const NOTHING: Measured = { turnMs: [], events: 0, elapsedMs: 0, serverCpuMs: 0 }

function add(sum: Measured = NOTHING, result: Measured): Measured {
  return {
    turnMs: sum.turnMs.concat(result.turnMs),
    events: sum.events + result.events,
    elapsedMs: sum.elapsedMs + result.elapsedMs,
    serverCpuMs: sum.serverCpuMs + result.serverCpuMs,
  }
}
