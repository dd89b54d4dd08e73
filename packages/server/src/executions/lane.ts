import { AshError } from '@ash-ai/shared'

/** A place in a lane: in line first, then at work. */
export interface Place {
  /** Resolves when it is its turn, or when the place was given up. */
  readonly ready: Promise<void>
  /** Whether it had to wait. */
  readonly isWaiting: boolean
  /** Gives the place up, at work or in line; whoever is next goes on at once. Safe to call again. */
  leave(): void
}

/** So many work at once, the others wait in the order in which they came, and only so many may wait. */
export class Lane {
  readonly #size: number
  readonly #maxWaiting: number
  readonly #waiting = new Set<() => void>()
  #working = 0

  constructor(size: number, maxWaiting: number) {
    this.#size = size
    this.#maxWaiting = maxWaiting
  }

  get waiting(): number {
    return this.#waiting.size
  }

  get isEmpty(): boolean {
    return this.#working === 0
  }

  /** Throws `queue_full`; not where `isKnown`: what was accepted before keeps its place, however many there are. */
  enter(isKnown = false): Place {
    if (this.#working < this.#size) return this.#work()
    if (!isKnown && this.#waiting.size >= this.#maxWaiting)
      throw new AshError('queue_full', `${this.#waiting.size} runs wait already; send this one later`)
    return this.#wait()
  }

  #work(): Place {
    this.#working++
    return { ready: Promise.resolve(), isWaiting: false, leave: once(() => this.#free()) }
  }

  #wait(): Place {
    const { promise: ready, resolve } = Promise.withResolvers<void>()
    this.#waiting.add(resolve)
    const leave = once(() => {
      // Whoever waits for the place goes on, and finds that it is not wanted any more.
      if (this.#waiting.delete(resolve)) resolve()
      else this.#free()
    })
    return { ready, isWaiting: true, leave }
  }

  /** The place is handed on, never free in between. */
  #free(): void {
    const [next] = this.#waiting
    if (!next) {
      this.#working--
      return
    }
    this.#waiting.delete(next)
    next()
  }
}

function once(work: () => void): () => void {
  let isDone = false
  return () => {
    if (isDone) return
    isDone = true
    work()
  }
}
