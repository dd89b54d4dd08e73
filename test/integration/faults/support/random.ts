import { randomInt } from 'node:crypto'

/** What chance decides in a run; the same seed decides the same again. */
export const FAULT_SEED = Number(process.env.ASH_FAULT_SEED ?? randomInt(2 ** 31))
/** Turns of the largest run; the others take a share of it. */
export const FAULT_TURNS = Number(process.env.ASH_FAULT_TURNS ?? 200)

/** Small numbers from a seed (mulberry32). */
export class Random {
  #state: number

  constructor(seed: number) {
    this.#state = seed >>> 0
  }

  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let mixed = this.#state
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }

  below(limit: number): number {
    return Math.floor(this.next() * limit)
  }

  chance(probability: number): boolean {
    return this.next() < probability
  }

  /** A source of its own, so that what one actor draws does not depend on what the others do. */
  fork(): Random {
    return new Random(this.below(2 ** 31))
  }
}

/** Adds to a failure how to see it again. */
export async function withSeed(run: () => Promise<void>): Promise<void> {
  try {
    await run()
  } catch (error) {
    if (error instanceof Error) error.message += `\nThe same decisions again: ASH_FAULT_SEED=${FAULT_SEED}`
    throw error
  }
}
