/** USD per million tokens. */
export interface TokenRates {
  input: number
  output: number
  cacheWrite5m: number
  cacheWrite1h: number
  cacheRead: number
}

/** What a model costs. Users add models of their own in the same shape. */
export interface Price extends TokenRates {
  /** Other rates for the whole request once its prompt, cached parts included, exceeds `aboveTokens`. */
  longPrompt?: TokenRates & { aboveTokens: number }
  /** What `speed: "fast"` multiplies all rates by. Without it fast requests have no known price. */
  fastMultiplier?: number
}

export type PriceTable = ReadonlyMap<string, Price>

const RATES = ['input', 'output', 'cacheWrite5m', 'cacheWrite1h', 'cacheRead'] as const

/** Anthropic prices cache writes as a multiple of input; cache reads differ by model. */
const priced = (input: number, output: number, cacheRead = input * 0.1): TokenRates => ({
  input,
  output,
  cacheWrite5m: input * 1.25,
  cacheWrite1h: input * 2,
  cacheRead,
})

/**
 * List prices as published at platform.claude.com/docs/en/about-claude/pricing, read 2026-11-15. The one table:
 * users correct and extend it through `loadPrices`. A key stands for every model whose name begins with it,
 * so an unlisted minor version costs what its predecessor does; so far none was dearer.
 */
const LIST_PRICES: Record<string, Price> = {
  'claude-fable-5-1': priced(10, 50, 0.25),
  'claude-fable-5': priced(10, 50),
  'claude-mythos-5-1': priced(10, 50, 0.25),
  'claude-mythos-5': priced(10, 50),
  'claude-opus-5-5': { ...priced(4, 20, 0.2), fastMultiplier: 2 },
  'claude-opus-5': { ...priced(5, 25), fastMultiplier: 2 },
  'claude-opus-4-8': priced(5, 25),
  'claude-opus-4-7': priced(5, 25),
  'claude-opus-4-6': { ...priced(5, 25), fastMultiplier: 6 },
  'claude-opus-4-5': priced(5, 25),
  'claude-opus-4': priced(15, 75),
  'claude-sonnet-5': priced(2, 10), // 5.5 too; its cache reads may be cheaper, so this is the upper end.
  'claude-sonnet-4-6': priced(3, 15),
  'claude-sonnet-4': { ...priced(3, 15), longPrompt: { ...priced(6, 22.5), aboveTokens: 200_000 } },
  'claude-3-7-sonnet': priced(3, 15),
  'claude-3-5-sonnet': priced(3, 15),
  'claude-haiku-5-5': { ...priced(0.1, 0.5), longPrompt: { ...priced(0.5, 2.5), aboveTokens: 100_000 } },
  'claude-haiku-4-5': priced(1, 5),
  'claude-3-5-haiku': priced(0.8, 4),
}

/** The table in force: list prices, with `extra` added or put in their place. Throws naming the wrong field. */
export function loadPrices(extra: Record<string, unknown> = {}): PriceTable {
  const prices = new Map(Object.entries(LIST_PRICES))
  for (const [model, price] of Object.entries(extra)) {
    if (model === '') throw new Error('prices: a model name prefix must not be empty')
    prices.set(model, parsePrice(price, `prices["${model}"]`))
  }
  return prices
}

/** The price under the longest name the model's begins with; `claude-opus-4-1` is no beginning of `claude-opus-4-10`. */
export function findPrice(prices: PriceTable, model: string): Price | undefined {
  let best: string | undefined
  for (const prefix of prices.keys()) {
    if (isPrefixOf(prefix, model) && prefix.length > (best?.length ?? 0)) best = prefix
  }
  return best === undefined ? undefined : prices.get(best)
}

function isPrefixOf(prefix: string, model: string): boolean {
  if (!model.startsWith(prefix)) return false
  const isWord = /^\w\w$/
  return !isWord.test(prefix.slice(-1) + model.charAt(prefix.length))
}

function parsePrice(value: unknown, path: string): Price {
  const fields = fieldsOf(value, path, [...RATES, 'longPrompt', 'fastMultiplier'])
  const price: Price = parseRates(fields, path)
  if (fields.longPrompt !== undefined) {
    const at = `${path}.longPrompt`
    const long = fieldsOf(fields.longPrompt, at, [...RATES, 'aboveTokens'])
    price.longPrompt = { ...parseRates(long, at), aboveTokens: amount(long.aboveTokens, `${at}.aboveTokens`) }
  }
  if (fields.fastMultiplier !== undefined) {
    price.fastMultiplier = amount(fields.fastMultiplier, `${path}.fastMultiplier`)
  }
  return price
}

/** Input and output are required; cache rates not given follow Anthropic's usual multiples of input. */
function parseRates(fields: Record<string, unknown>, path: string): TokenRates {
  const rates = priced(amount(fields.input, `${path}.input`), amount(fields.output, `${path}.output`))
  for (const name of RATES) {
    if (fields[name] !== undefined) rates[name] = amount(fields[name], `${path}.${name}`)
  }
  return rates
}

function fieldsOf(value: unknown, path: string, known: string[]): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new Error(`${path} must be an object with ${RATES.join(', ')} in USD per million tokens`)
  }
  // A mistyped name would silently leave the default rate in force.
  const unknown = Object.keys(value).find((name) => !known.includes(name))
  if (unknown !== undefined) throw new Error(`${path}.${unknown} is not known; known are ${known.join(', ')}`)
  return value as Record<string, unknown>
}

function amount(value: unknown, path: string): number {
  if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value
  throw new Error(`${path} must be a number of at least 0, not ${JSON.stringify(value)}`)
}
