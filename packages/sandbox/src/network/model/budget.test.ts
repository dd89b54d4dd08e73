import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Budget, type BudgetLimits, type Reservation } from './budget.ts'
import { loadPrices } from './price-table.ts'
import type { Need } from './reservation.ts'
import { NO_USAGE, type Usage } from './token-usage.ts'

const PRICES = loadPrices()

/** One that may cost at most 0.10 USD: 1000 × 5 $/M of input and 3800 × 25 $/M of output. */
function need(more: Partial<Need> & { maxTokens?: number } = {}): Need {
  const { maxTokens = 3800, model = 'claude-opus-5', ...rest } = more
  return {
    model,
    attempts: [{ model, maxTokens }],
    inputEstimate: 1000,
    cacheWrite: 'none',
    isFast: false,
    isRegional: false,
    remoteFetches: [],
    ...rest,
  }
}

const used = (outputTokens: number, more: Partial<Usage> = {}): Usage => ({
  ...NO_USAGE,
  model: 'claude-opus-5',
  outputTokens,
  isComplete: true,
  ...more,
})

function reserve(budget: Budget, request = need()): Reservation {
  const reservation = budget.reserve(request)
  if (reservation.isRefused) throw new Error(reservation.message)
  return reservation
}

const budgetOf = (limits: BudgetLimits) => new Budget(PRICES, limits)

test('a request is refused before its most would exceed the budget', () => {
  const budget = budgetOf({ maxUsd: 0.25 })
  reserve(budget)
  reserve(budget)
  const third = budget.reserve(need())
  expect(third).toMatchObject({ isRefused: true, code: 'no_room_now' })
  expect(third.isRefused && third.message).toMatch(
    /budget of \$0\.2500.*\$0\.2000 held.*up to \$0\.1000.*Raise the budget/,
  )
})

test('the true cost takes the place of what was held', () => {
  const budget = budgetOf({ maxUsd: 0.15 })
  reserve(budget).settle(used(400)) // 0.01
  expect(budget.totals().session).toMatchObject({ requests: 1, outputTokens: 400 })
  expect(budget.totals().session.usd).toBeCloseTo(0.01)
  reserve(budget)
  expect(budget.reserve(need())).toMatchObject({ code: 'no_room_now' })
})

test('what is spent does not come back', () => {
  const budget = budgetOf({ maxUsd: 0.15 })
  reserve(budget).settle(used(2400)) // 0.06
  expect(budget.reserve(need())).toMatchObject({ code: 'budget_exceeded' })
  budget.setLimits({ maxUsd: 0.2 })
  reserve(budget)
})

test('released means free, and only the first end counts', () => {
  const budget = budgetOf({ maxUsd: 0.1 })
  const first = reserve(budget)
  first.release()
  first.settle(used(1000))
  const second = reserve(budget)
  second.settle(used(0))
  second.settle(used(1000))
  second.release()
  expect(budget.totals().session).toMatchObject({ requests: 1, usd: 0 })
  reserve(budget)
})

test('a budget in tokens counts all of them and needs no price', () => {
  const budget = budgetOf({ maxTokens: 10_000 })
  const own = need({ model: 'own', maxTokens: 3000 })
  const usage = { model: 'own', inputTokens: 1, cacheReadTokens: 2000, cacheCreationTokens: 500 }
  reserve(budget, own).settle(used(2500, usage))
  expect(budget.totals().session).toMatchObject({ usd: 0, unpricedRequests: 1 })
  reserve(budget, own)
  const refusal = budget.reserve(own)
  expect(refusal).toMatchObject({ code: 'no_room_now' })
  expect(refusal.isRefused && refusal.message).toContain('10000 tokens')
})

test.each([
  ['the model', { model: 'own' }, 'own'],
  [
    'a fallback',
    {
      attempts: [
        { model: 'claude-opus-5', maxTokens: 1 },
        { model: 'own', maxTokens: 1 },
      ],
    },
    'own',
  ],
  ['fast inference', { model: 'claude-haiku-4-5', isFast: true }, 'fastMultiplier'],
])('under a budget in USD %s without a price is refused, saying what to add', (_, more, word) => {
  const refusal = budgetOf({ maxUsd: 100 }).reserve(need(more))
  expect(refusal).toMatchObject({ isRefused: true, code: 'no_price' })
  expect(refusal.isRefused && refusal.message).toContain(word)
  expect(refusal.isRefused && refusal.message).toContain('price table')
})

test('without limits everything is let through and counted', () => {
  const budget = budgetOf({})
  reserve(budget, need({ model: 'own', maxTokens: 1e9 })).settle(used(7, { model: 'own' }))
  expect(budget.totals().session).toMatchObject({ requests: 1, outputTokens: 7 })
})

test('the most includes cache writes, surcharges, fallbacks, searches and their rounds', () => {
  const room = (more: Partial<Need>) => {
    const refusal = budgetOf({ maxUsd: 0 }).reserve(need(more))
    return refusal.isRefused ? Number(/up to \$([\d.]+)/.exec(refusal.message)?.[1]) : 0
  }
  expect(room({})).toBeCloseTo(0.1)
  expect(room({ cacheWrite: '5m' })).toBeCloseTo(0.0013 + 0.1, 3)
  expect(room({ cacheWrite: '1h' })).toBeCloseTo(0.005 + 0.1, 3)
  expect(room({ isFast: true })).toBeCloseTo(0.2)
  expect(room({ isRegional: true })).toBeCloseTo(0.11)
  const attempts = [1, 2].map(() => ({ model: 'claude-opus-5', maxTokens: 3800 }))
  expect(room({ attempts })).toBeCloseTo(0.2)
  expect(room({ remoteFetches: [{ kind: 'web_search', type: 'x', maxUses: 4 }] })).toBeCloseTo(
    0.1 + 0.04 + 0.02,
  )
})

test('an answer in the name of a model without a price costs as the one asked for', () => {
  const budget = budgetOf({ maxUsd: 1 })
  reserve(budget).settle(used(4000, { model: 'gateway-internal' }))
  expect(budget.totals().session.usd).toBeCloseTo(0.1)
})

test('an answer that cannot be priced at all costs what was held', () => {
  const budget = budgetOf({ maxUsd: 1 })
  reserve(budget).settle(used(1, { others: [{ ...NO_USAGE, model: 'unheard-of', outputTokens: 1 }] }))
  expect(budget.totals().session.usd).toBeCloseTo(0.1)
})

test('turns have their own sums, and a late answer counts for the turn that asked', () => {
  const budget = budgetOf({})
  budget.beginTurn('one')
  const late = reserve(budget)
  reserve(budget).settle(used(10))
  budget.beginTurn('two')
  reserve(budget).settle(used(100))
  late.settle(used(1, { isEstimated: true }))
  expect(budget.totals().turn).toMatchObject({ requests: 1, outputTokens: 100, estimatedRequests: 0 })
  expect(budget.totals('one').turn).toMatchObject({ requests: 2, outputTokens: 11, estimatedRequests: 1 })
  expect(budget.totals().session).toMatchObject({ requests: 3, outputTokens: 111 })
  expect(budget.totals('none').turn.requests).toBe(0)
})

test('a thousand turns are not all kept', () => {
  const budget = budgetOf({})
  for (let turn = 0; turn < 1000; turn++) budget.beginTurn(`turn-${turn}`)
  expect(budget.toJSON().turns).toHaveLength(100)
  expect(budget.toJSON().turns.at(-1)?.turnId).toBe('turn-999')
})

test('a stored budget goes on where it ended, with requests under way charged their prompt', () => {
  const budget = budgetOf({ maxUsd: 0.11 })
  budget.beginTurn('one')
  reserve(budget).settle(used(100)) // 0.0025
  reserve(budget)
  const stored = JSON.parse(JSON.stringify(budget))
  const restored = new Budget(PRICES, { maxUsd: 0.11 }, stored)
  expect(restored.totals().turn).toMatchObject({ requests: 2, inputTokens: 1000, estimatedRequests: 1 })
  expect(restored.totals().session.usd).toBeCloseTo(0.0025 + 0.005)
  reserve(restored)
  expect(restored.reserve(need())).toMatchObject({ code: 'no_room_now' })
})

test.each([{ session: {} }, { session: null }, { session: { requests: Number.NaN } }])(
  'a damaged record %j is refused, not taken for an unused budget',
  (state) => {
    expect(() => new Budget(PRICES, {}, { turns: [], ...state } as never)).toThrow('stored budget: requests')
  },
)

test('no order of requests and answers spends or holds more than the budget', () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant('ask' as const), maxTokens: fc.nat(8000), prompt: fc.nat(50_000) }),
    fc.record({
      kind: fc.constantFrom('answer' as const, 'drop' as const),
      part: fc.double({ min: 0, max: 1, noNaN: true }),
    }),
  )
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 200 }),
      fc.constantFrom({ maxUsd: 1 }, { maxTokens: 100_000 }),
      (steps, limits) => {
        const budget = budgetOf(limits)
        const open: { reservation: Reservation; request: Need }[] = []
        for (const each of steps) {
          if (each.kind === 'ask') {
            const request = need({ maxTokens: each.maxTokens, inputEstimate: each.prompt })
            const reservation = budget.reserve(request)
            if (!reservation.isRefused) open.push({ reservation, request })
            continue
          }
          const next = open.shift()
          const output = Math.floor((next?.request.attempts[0]?.maxTokens ?? 0) * each.part)
          if (each.kind === 'drop') next?.reservation.release()
          else next?.reservation.settle(used(output, { inputTokens: next.request.inputEstimate }))
        }
        // Even if all that is under way costs its most.
        for (const { reservation, request } of open) {
          reservation.settle(
            used(request.attempts[0]?.maxTokens ?? 0, { inputTokens: request.inputEstimate }),
          )
        }
        const { usd, inputTokens, outputTokens } = budget.totals().session
        if ('maxUsd' in limits) expect(usd).toBeLessThanOrEqual(1 + 1e-9)
        else expect(inputTokens + outputTokens).toBeLessThanOrEqual(100_000)
      },
    ),
  )
})
