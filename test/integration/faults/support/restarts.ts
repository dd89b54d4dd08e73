import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { TestServer } from '../../support/test-server.ts'
import type { Random } from './random.ts'

const SECOND_KILL_CHANCE = 0.25
const START_MS = 400

/** The one server of a run, which any of its sessions may have killed. */
export class Restarts {
  readonly #server: TestServer
  readonly #random: Random
  #running: Promise<void> | undefined
  #kills = 0

  constructor(server: TestServer, random: Random) {
    this.#server = server
    this.#random = random
  }

  get kills(): number {
    return this.#kills
  }

  /** Resolves when the server is there. */
  async up(): Promise<void> {
    while (this.#running !== undefined) await this.#running
  }

  /** Kills the server and starts it on what it left; now and then it is killed once more while it starts. */
  async kill(): Promise<void> {
    this.#kills++
    this.#running ??= this.#restart().finally(() => {
      this.#running = undefined
    })
    await this.#running
  }

  async #restart(): Promise<void> {
    await this.#server.kill()
    if (this.#random.chance(SECOND_KILL_CHANCE)) {
      const started = this.#server.start().catch(() => {})
      await sleep(this.#random.below(START_MS)) // Where in its start it dies is what the seed decides.
      await this.#server.kill()
      await started
    }
    await this.#server.start()
  }
}

/** A port for a server that comes back on it: not one of those that the system gives to clients meanwhile. */
export async function lastingPort(random: Random): Promise<number> {
  for (;;) {
    const port = 15_000 + random.below(15_000)
    const probe = createServer()
    const isFree = await new Promise<boolean>((resolve) => {
      probe.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true))
    })
    probe.close()
    if (isFree) return port
  }
}
