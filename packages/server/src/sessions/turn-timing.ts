import type { SessionDeps } from './session-deps.ts'

/** Where the time of a turn goes, in the order in which a turn passes them. */
export const TURN_HOPS = ['lookup', 'accepted', 'command', 'first_message', 'first_byte', 'done'] as const
export type TurnHop = (typeof TURN_HOPS)[number]

type TimingDeps = Pick<SessionDeps, 'metrics' | 'log' | 'debugTiming'>

/** Measures one turn from the request that asked for it; each hop counts once, when it is first reached. */
export class TurnTiming {
  readonly #deps: TimingDeps
  readonly #startMs: number
  readonly #reached: Partial<Record<TurnHop, number>> = {}
  turnId = ''

  constructor(deps: TimingDeps, startMs = performance.now()) {
    this.#deps = deps
    this.#startMs = startMs
  }

  reach(hop: TurnHop): void {
    if (this.#reached[hop] !== undefined) return
    const ms = performance.now() - this.#startMs
    this.#reached[hop] = ms
    this.#deps.metrics.turnHopSeconds[hop].observe(ms / 1000)
    if (this.#deps.debugTiming) this.#deps.log.info({ turnId: this.turnId, hop, ms }, 'turn timing')
  }

  /** Value of the `Server-Timing` header: milliseconds since the request came. */
  toHeader(): string {
    let header = ''
    for (const hop in this.#reached) {
      const ms = this.#reached[hop as TurnHop] ?? 0
      header += `${header === '' ? '' : ', '}${hop};dur=${Math.round(ms * 1000) / 1000}`
    }
    return header
  }
}
