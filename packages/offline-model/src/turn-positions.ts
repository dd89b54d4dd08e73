import { createHash } from 'node:crypto'
import type { RequestContext } from './request-context.ts'

const MAX_TURNS = 1000

type Played = { step: number; position: number; isFailure: boolean }

/**
 * Where each turn stands in its list of steps. A turn without failures stands where the conversation says. A failing
 * step mostly leaves no trace there, and sometimes half a reply, so turns with one are remembered: the latest of them.
 */
export class TurnPositions {
  readonly #turns = new Map<string, Played>()

  /** The position for this request in a list of steps that came from `source`: a rule, or the prompt. */
  find(source: string, context: RequestContext): number {
    const last = this.#turns.get(turnKey(source, context))
    if (last === undefined) return context.step
    const replies = context.step - last.step
    return Math.max(0, last.position + (last.isFailure ? Math.max(1, replies) : replies))
  }

  keep(source: string, context: RequestContext, played: { position: number; isFailure: boolean }): void {
    const key = turnKey(source, context)
    if (!played.isFailure && !this.#turns.has(key)) return
    this.#turns.delete(key)
    this.#turns.set(key, { ...played, step: context.step })
    const [oldest] = this.#turns.keys()
    if (this.#turns.size > MAX_TURNS && oldest !== undefined) this.#turns.delete(oldest)
  }
}

// The prompt is part of the key for clients that name no session.
function turnKey(source: string, { sessionId, turn, prompt }: RequestContext): string {
  return `${source} ${sessionId} ${turn} ${createHash('sha256').update(prompt).digest('base64')}`
}
