import { addTotals, noTotals, parseTotals, type Totals, tokensIn, totalsOf } from './budget-totals.ts'
import { findPrice, type PriceTable } from './price-table.ts'
import { type Ceiling, ceilingOf, type Need, unansweredUsage } from './reservation.ts'
import { usageCost } from './token-cost.ts'
import type { Usage } from './token-usage.ts'

/** What a session may use in all. Absent means unlimited. */
export interface BudgetLimits {
  /** Tokens read and written, cached ones too. */
  maxTokens?: number | undefined
  maxUsd?: number | undefined
}

export interface BudgetRefusal {
  isRefused: true
  /** `no_room_now`: requests under way hold what is left and may give some of it back. */
  code: 'no_price' | 'budget_exceeded' | 'no_room_now'
  message: string
}

/** Part of the budget, held for one request. The first of its two ends counts; later ones do nothing. */
export interface Reservation {
  isRefused: false
  /** The true cost takes the place of what was held. */
  settle(usage: Usage): void
  /** The request never left, or was answered with an error: nothing is charged. */
  release(): void
}

/** A stored budget: plain JSON. */
export interface BudgetState {
  session: Totals
  turns: { turnId: string; totals: Totals }[]
}

interface Hold extends Ceiling {
  turnId: string
  need: Need
}

const MAX_TURNS = 100

/**
 * The budget of one session. All of it is synchronous, so nothing comes between check and reservation: requests
 * sent at the same time cannot exceed together what each may not exceed alone.
 */
export class Budget {
  readonly #prices: PriceTable
  readonly #session: Totals
  readonly #turns: Map<string, Totals>
  readonly #held = new Set<Hold>()
  #limits: BudgetLimits
  #turnId: string

  /** With `state`, goes on where a stored budget ended. */
  constructor(prices: PriceTable, limits: BudgetLimits = {}, state?: BudgetState) {
    this.#prices = prices
    this.#limits = limits
    this.#session = state ? parseTotals(state.session) : noTotals()
    this.#turns = new Map(state?.turns.map(({ turnId, totals }) => [turnId, parseTotals(totals)]))
    this.#turnId = state?.turns.at(-1)?.turnId ?? ''
  }

  /** New limits for a running session; what is under way goes on. */
  setLimits(limits: BudgetLimits): void {
    this.#limits = limits
  }

  /** Requests from now on belong to this turn; those under way stay with theirs. */
  beginTurn(turnId: string): void {
    this.#turnId = turnId
    const totals = this.#turns.get(turnId) ?? noTotals()
    this.#turns.delete(turnId)
    this.#turns.set(turnId, totals) // Last in order: the current one.
    for (const oldest of this.#turns.keys()) {
      if (this.#turns.size <= MAX_TURNS) break
      this.#turns.delete(oldest)
    }
  }

  /** Sums so far, of the session and of one turn (by default the current one). */
  totals(turnId = this.#turnId): { session: Totals; turn: Totals } {
    return { session: { ...this.#session }, turn: { ...(this.#turns.get(turnId) ?? noTotals()) } }
  }

  /** Holds the most the request can cost, or says why not. Call it before the request leaves. */
  reserve(need: Need): Reservation | BudgetRefusal {
    const hold: Hold = { ...ceilingOf(need, this.#prices), turnId: this.#turnId, need }
    const refusal = this.#refusalOf(hold)
    if (refusal !== undefined) return refusal
    this.#held.add(hold)
    return {
      isRefused: false,
      settle: (usage) => {
        if (this.#held.delete(hold)) this.#charge(hold, usage, this.#session, this.#turns.get(hold.turnId))
      },
      release: () => {
        this.#held.delete(hold)
      },
    }
  }

  /** What to store. Requests under way are charged their prompt: after a crash nobody will hear of them again. */
  toJSON(): BudgetState {
    const session = { ...this.#session }
    const turns = [...this.#turns].map(([turnId, totals]) => ({ turnId, totals: { ...totals } }))
    for (const hold of this.#held) {
      const turn = turns.find(({ turnId }) => turnId === hold.turnId)
      this.#charge(hold, unansweredUsage(hold.need), session, turn?.totals)
    }
    return { session, turns }
  }

  #charge(hold: Hold, usage: Usage, ...sums: (Totals | undefined)[]): void {
    // Gateways may answer in the name of a model without a price: the one asked for has passed the check.
    const isPriced = findPrice(this.#prices, usage.model) !== undefined
    const charged = isPriced ? usage : { ...usage, model: hold.need.model }
    const heldUsd = hold.unpriced === undefined ? hold.usd : undefined
    const totals = totalsOf(charged, usageCost(this.#prices, charged) ?? heldUsd)
    for (const sum of sums) if (sum !== undefined) addTotals(sum, totals)
  }

  #refusalOf(hold: Hold): BudgetRefusal | undefined {
    const { maxUsd, maxTokens } = this.#limits
    if (maxUsd !== undefined && hold.unpriced !== undefined) {
      return { isRefused: true, code: 'no_price', message: noPrice(hold.unpriced, hold.need.isFast) }
    }
    const held = { usd: 0, tokens: 0 }
    for (const { usd, tokens } of this.#held) {
      held.usd += usd
      held.tokens += tokens
    }
    return (
      refusalBy('USD', maxUsd, this.#session.usd, held.usd, hold.usd, hold.need) ??
      refusalBy('tokens', maxTokens, tokensIn(this.#session), held.tokens, hold.tokens, hold.need)
    )
  }
}

function refusalBy(
  unit: 'USD' | 'tokens',
  limit: number | undefined,
  spent: number,
  held: number,
  asked: number,
  need: Need,
): BudgetRefusal | undefined {
  if (limit === undefined || spent + held + asked <= limit) return undefined
  const show = (amount: number) => (unit === 'USD' ? `$${amount.toFixed(4)}` : `${Math.ceil(amount)} tokens`)
  const output = need.attempts
    .map(({ model, maxTokens }) => `${maxTokens} output tokens of ${model}`)
    .join(', ')
  return {
    isRefused: true,
    code: spent + asked <= limit ? 'no_room_now' : 'budget_exceeded',
    message:
      `the session's budget of ${show(limit)} has no room for this request: ${show(spent)} used, ${show(held)} held by ` +
      `requests under way, and this one may take up to ${show(asked)} (${output}, about ${need.inputEstimate} input ` +
      'tokens). Raise the budget, use a cheaper model, or ask for less output (CLAUDE_CODE_MAX_OUTPUT_TOKENS)',
  }
}

function noPrice(model: string, isFast: boolean): string {
  const lacks = isFast ? `a price with fastMultiplier for ${model}` : `a price for ${model}`
  return `a budget in USD needs ${lacks}: add "${model}" to the price table in USD per million tokens, or use a budget in tokens`
}
