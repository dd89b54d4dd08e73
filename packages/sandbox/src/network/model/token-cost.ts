import { findPrice, type Price, type PriceTable, type TokenRates } from './price-table.ts'
import { type ModelTokens, promptTokens, type Usage } from './token-usage.ts'

/** What makes the same tokens dearer. */
export interface Surcharges {
  isFast: boolean
  isRegional: boolean
}

/** USD for one search, whatever the model. */
export const WEB_SEARCH_USD = 0.01
const REGIONAL_MULTIPLIER = 1.1

/** USD for these tokens; undefined where no price is known. */
export function tokenCost(
  prices: PriceTable,
  tokens: ModelTokens,
  surcharges: Surcharges,
): number | undefined {
  const price = findPrice(prices, tokens.model)
  const multiplier = price && multiplierOf(price, surcharges)
  if (price === undefined || multiplier === undefined) return undefined
  const rates = ratesFor(price, promptTokens(tokens))
  const dollars =
    tokens.inputTokens * rates.input +
    tokens.outputTokens * rates.output +
    (tokens.cacheCreationTokens - tokens.cacheCreation1hTokens) * rates.cacheWrite5m +
    tokens.cacheCreation1hTokens * rates.cacheWrite1h +
    tokens.cacheReadTokens * rates.cacheRead
  return (dollars * multiplier) / 1_000_000
}

/** USD for a whole request; undefined where any part of it has no price. */
export function usageCost(prices: PriceTable, usage: Usage): number | undefined {
  const parts = [usage, ...usage.others].map((tokens) => tokenCost(prices, tokens, usage))
  let sum = usage.webSearches * WEB_SEARCH_USD
  for (const part of parts) {
    if (part === undefined) return undefined
    sum += part
  }
  return sum
}

function multiplierOf(price: Price, { isFast, isRegional }: Surcharges): number | undefined {
  const speed = isFast ? price.fastMultiplier : 1
  return speed === undefined ? undefined : speed * (isRegional ? REGIONAL_MULTIPLIER : 1)
}

function ratesFor(price: Price, prompt: number): TokenRates {
  return price.longPrompt !== undefined && prompt > price.longPrompt.aboveTokens ? price.longPrompt : price
}
