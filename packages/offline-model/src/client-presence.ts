import type { ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

/** A response whose client may leave at any time; every wait here ends when it does. */
export class ClientPresence {
  readonly #response: ServerResponse
  readonly #departure = new AbortController()
  readonly #left: Promise<void>

  constructor(response: ServerResponse) {
    this.#response = response
    this.#left = new Promise((resolve) => {
      this.#departure.signal.addEventListener('abort', () => resolve())
    })
    if (response.destroyed) this.#departure.abort()
    else response.once('close', () => this.#departure.abort())
  }

  get hasLeft(): boolean {
    return this.#departure.signal.aborted
  }

  async pause(ms = 0): Promise<void> {
    if (ms === 0) return
    try {
      await sleep(ms, undefined, { signal: this.#departure.signal })
    } catch (error) {
      if (!this.hasLeft) throw error
    }
  }

  /**
   * Resolves once the operating system has the data: a slow reader holds the reply up, and what was written before a
   * scripted disconnect does arrive.
   */
  async write(data: string): Promise<void> {
    if (this.hasLeft) return
    const written = new Promise<void>((resolve) => this.#response.write(data, () => resolve()))
    await Promise.race([written, this.#left])
  }

  /** Resolves when the client has left, however long that takes. */
  leaves(): Promise<void> {
    return this.#left
  }
}
