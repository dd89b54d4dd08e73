import { totalTokens, type Usage } from './token-usage.ts'

/** Sums over requests, of a turn or a session. */
export interface Totals {
  requests: number
  inputTokens: number
  outputTokens: number
  cacheCreationTokens: number
  cacheReadTokens: number
  webSearches: number
  usd: number
  /** Requests whose numbers are partly guesses, since their response broke off. */
  estimatedRequests: number
  /** Requests to models without a price: `usd` leaves them out. */
  unpricedRequests: number
}

const NAMES = [
  'requests',
  'inputTokens',
  'outputTokens',
  'cacheCreationTokens',
  'cacheReadTokens',
  'webSearches',
  'usd',
  'estimatedRequests',
  'unpricedRequests',
] as const satisfies (keyof Totals)[]

export const noTotals = (): Totals => ({
  requests: 0,
  inputTokens: 0,
  outputTokens: 0,
  cacheCreationTokens: 0,
  cacheReadTokens: 0,
  webSearches: 0,
  usd: 0,
  estimatedRequests: 0,
  unpricedRequests: 0,
})

/** One request as totals, so that adding is all there is to do. */
export function totalsOf(usage: Usage, usd: number | undefined): Totals {
  const totals = { ...noTotals(), requests: 1, webSearches: usage.webSearches, usd: usd ?? 0 }
  for (const tokens of [usage, ...usage.others]) {
    totals.inputTokens += tokens.inputTokens
    totals.outputTokens += tokens.outputTokens
    totals.cacheCreationTokens += tokens.cacheCreationTokens
    totals.cacheReadTokens += tokens.cacheReadTokens
  }
  if (usage.isEstimated) totals.estimatedRequests = 1
  if (usd === undefined) totals.unpricedRequests = 1
  return totals
}

export function addTotals(to: Totals, more: Totals): void {
  for (const name of NAMES) to[name] += more[name]
}

/** Stored totals, checked: a damaged record must not become an unlimited budget. */
export function parseTotals(value: unknown): Totals {
  const totals = noTotals()
  for (const name of NAMES) {
    const stored = (value as Partial<Record<string, unknown>> | null | undefined)?.[name]
    if (typeof stored !== 'number' || !Number.isFinite(stored) || stored < 0) {
      throw new Error(`stored budget: ${name} must be a number of at least 0`)
    }
    totals[name] = stored
  }
  return totals
}

/** All tokens count the same against a token budget, cached ones too: they are what the model reads and writes. */
export const tokensIn = (totals: Totals): number =>
  totalTokens({ ...totals, model: '', cacheCreation1hTokens: 0 })
