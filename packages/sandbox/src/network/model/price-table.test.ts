import { expect, test } from 'vitest'
import { findPrice, loadPrices } from './price-table.ts'
import { tokenCost, usageCost } from './token-cost.ts'
import { NO_USAGE } from './token-usage.ts'

const MILLION = 1_000_000
const plain = { isFast: false, isRegional: false }

test.each([
  ['claude-opus-5-5', 4, 20],
  ['claude-opus-5', 5, 25],
  ['claude-opus-4-8', 5, 25],
  ['claude-opus-4-5-20251101', 5, 25],
  ['claude-opus-4-1-20250805', 15, 75],
  ['claude-opus-4-20250514', 15, 75],
  ['claude-sonnet-5-5', 2, 10],
  ['claude-sonnet-4-6', 3, 15],
  ['claude-sonnet-4-5-20250929', 3, 15],
  ['claude-haiku-5-5', 0.1, 0.5],
  ['claude-haiku-4-5-20251001', 1, 5],
  ['claude-3-5-haiku-latest', 0.8, 4],
  ['claude-fable-5-1', 10, 50],
])('%s has its list price', (model, input, output) => {
  expect(findPrice(loadPrices(), model)).toMatchObject({ input, output })
})

test.each(['gpt-6', 'claude', 'claude-opus', 'claude-opus-45', 'my-claude-opus-5', '', 'claude-haiku-4'])(
  '%j has no price',
  (model) => {
    expect(findPrice(loadPrices(), model)).toBeUndefined()
  },
)

test('the longest prefix wins, whoever wrote it and in whatever order', () => {
  const prices = loadPrices({
    'claude-opus-5-5-special': { input: 1, output: 2 },
    'claude-opus-5-5': { input: 7, output: 8 },
    'gateway/': { input: 3, output: 4 },
  })
  expect(findPrice(prices, 'claude-opus-5-5-special-2')?.input).toBe(1)
  expect(findPrice(prices, 'claude-opus-5-5-20260901')?.input).toBe(7)
  expect(findPrice(prices, 'claude-opus-5-1')?.input).toBe(5)
  expect(findPrice(prices, 'gateway/anything')?.input).toBe(3)
})

test('a price given by its input and output gets the usual cache rates', () => {
  expect(findPrice(loadPrices({ own: { input: 4, output: 5 } }), 'own')).toEqual({
    input: 4,
    output: 5,
    cacheWrite5m: 5,
    cacheWrite1h: 8,
    cacheRead: 0.4,
  })
})

test.each([
  [{ own: 3 }, 'prices["own"] must be an object'],
  [{ own: { input: 1 } }, 'prices["own"].output must be a number of at least 0, not undefined'],
  [{ own: { input: '1', output: 1 } }, 'prices["own"].input must be a number of at least 0, not "1"'],
  [{ own: { input: 1, output: -1 } }, 'prices["own"].output must be a number'],
  [{ own: { input: 1, output: Number.NaN } }, 'prices["own"].output must be a number'],
  [{ own: { input: 1, output: 1, cacheread: 1 } }, 'prices["own"].cacheread is not known'],
  [{ own: { input: 1, output: 1, cacheRead: null } }, 'prices["own"].cacheRead must be a number'],
  [
    { own: { input: 1, output: 1, longPrompt: { input: 1, output: 2 } } },
    'prices["own"].longPrompt.aboveTokens',
  ],
  [{ own: { input: 1, output: 1, fastMultiplier: 'x' } }, 'prices["own"].fastMultiplier'],
  [{ '': { input: 1, output: 1 } }, 'must not be empty'],
])('a wrong price %j is refused by its field', (extra, message) => {
  expect(() => loadPrices(extra)).toThrow(message)
})

test('each kind of token costs its own rate', () => {
  const tokens = { ...NO_USAGE, model: 'claude-opus-5' }
  const cost = (part: object) => tokenCost(loadPrices(), { ...tokens, ...part }, plain)
  expect(cost({ inputTokens: MILLION })).toBeCloseTo(5)
  expect(cost({ outputTokens: MILLION })).toBeCloseTo(25)
  expect(cost({ cacheReadTokens: MILLION })).toBeCloseTo(0.5)
  expect(cost({ cacheCreationTokens: MILLION })).toBeCloseTo(6.25)
  expect(cost({ cacheCreationTokens: MILLION, cacheCreation1hTokens: MILLION })).toBeCloseTo(10)
})

test('a long prompt changes the rates of the whole request, cached parts counting too', () => {
  const cost = (part: object) =>
    tokenCost(loadPrices(), { ...NO_USAGE, model: 'claude-haiku-5-5', ...part }, plain)
  expect(cost({ inputTokens: 100_000, outputTokens: 1000 })).toBeCloseTo(0.01 + 0.0005)
  expect(cost({ inputTokens: 1, cacheReadTokens: 100_000, outputTokens: 1000 })).toBeCloseTo(
    0.0050005 + 0.0025,
  )
})

test('fast and regional inference cost more, and fast without a known multiplier has no price', () => {
  const tokens = { ...NO_USAGE, model: 'claude-opus-5-5', outputTokens: MILLION }
  expect(tokenCost(loadPrices(), tokens, { isFast: true, isRegional: false })).toBeCloseTo(40)
  expect(tokenCost(loadPrices(), tokens, { isFast: true, isRegional: true })).toBeCloseTo(44)
  const slow = { ...tokens, model: 'claude-haiku-4-5' }
  expect(tokenCost(loadPrices(), slow, { isFast: true, isRegional: false })).toBeUndefined()
})

test('a request costs its searches and its other models too, or nothing known', () => {
  const other = { ...NO_USAGE, model: 'claude-haiku-4-5', outputTokens: MILLION }
  const usage = {
    ...NO_USAGE,
    model: 'claude-opus-5',
    outputTokens: MILLION,
    webSearches: 3,
    others: [other],
  }
  expect(usageCost(loadPrices(), usage)).toBeCloseTo(25 + 5 + 0.03)
  expect(usageCost(loadPrices(), { ...usage, others: [{ ...other, model: 'unheard-of' }] })).toBeUndefined()
})
