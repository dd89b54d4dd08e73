import type { SessionDeps } from './session-deps.ts'

/** Where the time of a turn goes, in the order in which a turn passes them. */
export const TURN_HOPS = ['lookup', 'accepted', 'command', 'first_message', 'first_byte', 'done'] as const
export type TurnHop = (typeof TURN_HOPS)[number]

/** Measures one turn from the request that asked for it; each hop counts once, when it is first reached. */
export class TurnTiming {
  readonly #deps: Pick<SessionDeps, 'metrics' | 'log' | 'debugTiming'>
  readonly #startMs: number
  readonly #reached = new Map<TurnHop, number>()
  turnId = ''

  constructor(deps: Pick<SessionDeps, 'metrics' | 'log' | 'debugTiming'>, startMs = performance.now()) {
    this.#deps = deps
    this.#startMs = startMs
  }

  reach(hop: TurnHop): void {
    if (this.#reached.has(hop)) return
    const ms = performance.now() - this.#startMs
    this.#reached.set(hop, ms)
    this.#deps.metrics.turnHopSeconds.get(hop)?.observe(ms / 1000)
    if (this.#deps.debugTiming) this.#deps.log.info({ turnId: this.turnId, hop, ms }, 'turn timing')
  }

  /** Value of the `Server-Timing` header: milliseconds since the request came. */
  toHeader(): string {
    return Array.from(this.#reached, ([hop, ms]) => `${hop};dur=${ms.toFixed(3)}`).join(', ')
  }
}
