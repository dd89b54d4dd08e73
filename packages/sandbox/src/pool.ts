import { AshError } from '@ash-ai/shared'
import type { Sandbox, SandboxManager, SandboxRequest } from './manager.ts'

const RETRY_AFTER_SECONDS = 5

/** Bounds how many sandboxes live at once. A slot is taken before a start begins and given back when it is gone. */
export class SandboxPool {
  readonly max: number
  readonly #manager: SandboxManager
  readonly #live = new Set<Promise<Sandbox>>()

  constructor(manager: SandboxManager, max: number) {
    this.#manager = manager
    this.max = max
  }

  get live(): number {
    return this.#live.size
  }

  /** Throws `pool_full` where no slot is free. Somebody else may still be quicker. */
  assertRoom(): void {
    if (this.#live.size < this.max) return
    throw new AshError(
      'pool_full',
      `All ${this.max} sandboxes are in use. End a session or raise ASH_MAX_SANDBOXES.`,
      { retryAfterSeconds: RETRY_AFTER_SECONDS },
    )
  }

  async acquire(request: SandboxRequest): Promise<Sandbox> {
    this.assertRoom()
    const starting = this.#manager.start(request)
    this.#live.add(starting)
    const release = () => this.#live.delete(starting)
    starting.then((sandbox) => sandbox.exited.then(release), release)
    return starting
  }

  /** Stops every sandbox, also those that are only starting. */
  async stopAll(): Promise<void> {
    await Promise.allSettled([...this.#live].map(async (starting) => (await starting).stop()))
  }
}
