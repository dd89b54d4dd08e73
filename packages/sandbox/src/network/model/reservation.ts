import type { PriceTable } from './price-table.ts'
import type { InspectedRequest } from './request-inspector.ts'
import { tokenCost, WEB_SEARCH_USD } from './token-cost.ts'
import { type ModelTokens, NO_USAGE, totalTokens, type Usage } from './token-usage.ts'

/** What the budget needs to know of a request. */
export type Need = Pick<
  InspectedRequest,
  'model' | 'attempts' | 'inputEstimate' | 'cacheWrite' | 'isFast' | 'isRegional' | 'remoteFetches'
>

/** The most a request can cost, as far as can be told beforehand. */
export interface Ceiling {
  tokens: number
  usd: number
  /** A model that may work on the request and has no price: `usd` leaves it out. */
  unpriced: string | undefined
}

/**
 * Every model that may be run is counted with all its output and the whole prompt, at the dearest rate the
 * request can meet: nothing read from the cache, everything written to it. A server tool makes the model read its
 * prompt again after each use; what the tool then adds to the prompt is not known and the one thing not covered.
 */
export function ceilingOf(need: Need, prices: PriceTable): Ceiling {
  const searches = sum(need.remoteFetches.map((fetch) => (fetch.kind === 'web_search' ? fetch.maxUses : 0)))
  const uses = sum(need.remoteFetches.map((fetch) => ('maxUses' in fetch ? fetch.maxUses : 0)))
  const prompt = promptTokensOf(need, need.inputEstimate * (1 + uses))
  const ceiling: Ceiling = { tokens: 0, usd: searches * WEB_SEARCH_USD, unpriced: undefined }
  for (const { model, maxTokens } of need.attempts) {
    const tokens = { ...prompt, model, outputTokens: maxTokens }
    const usd = tokenCost(prices, tokens, need)
    ceiling.tokens += totalTokens(tokens)
    ceiling.usd += usd ?? 0
    if (usd === undefined) ceiling.unpriced ??= model
  }
  return ceiling
}

/** A request that left and was not heard of again: the provider has read its prompt. */
export function unansweredUsage(need: Need): Usage {
  const { isFast, isRegional } = need
  return { ...NO_USAGE, ...promptTokensOf(need, need.inputEstimate), isFast, isRegional, isEstimated: true }
}

/** A request answered in a way that cannot be read: all it could have cost. */
export function unreadableUsage(need: Need): Usage {
  return { ...unansweredUsage(need), outputTokens: need.attempts[0]?.maxTokens ?? 0 }
}

/** Output that was seen, with the prompt guessed where the response broke off before it told. */
export function withPrompt(usage: Usage, need: Need): Usage {
  const hasPrompt = usage.inputTokens + usage.cacheCreationTokens + usage.cacheReadTokens > 0
  return hasPrompt ? usage : { ...unansweredUsage(need), outputTokens: usage.outputTokens }
}

function promptTokensOf({ model, cacheWrite }: Need, tokens: number): ModelTokens {
  return {
    model,
    inputTokens: cacheWrite === 'none' ? tokens : 0,
    outputTokens: 0,
    cacheCreationTokens: cacheWrite === 'none' ? 0 : tokens,
    cacheCreation1hTokens: cacheWrite === '1h' ? tokens : 0,
    cacheReadTokens: 0,
  }
}

const sum = (numbers: number[]): number => numbers.reduce((total, number) => total + number, 0)
