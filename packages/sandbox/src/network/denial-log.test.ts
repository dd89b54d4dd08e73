import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { DenialLog, type EgressDenied } from './denial-log.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

function makeLog() {
  const events: EgressDenied[] = []
  return { events, log: new DenialLog((event) => events.push(event)) }
}

const denial = (host: string) => ({ host, port: 443, reason: 'no', setting: `network: ["${host}"]` })

test('the first denial is told at once, repetitions together and later', () => {
  const { events, log } = makeLog()
  for (let i = 0; i < 5; i++) log.add(denial('a.test'))
  expect(events).toEqual([{ ...denial('a.test'), count: 1 }])
  vi.advanceTimersByTime(10_000)
  expect(events.slice(1)).toEqual([{ ...denial('a.test'), count: 4 }])
  log.add(denial('a.test'))
  expect(events).toHaveLength(2)
  vi.advanceTimersByTime(30_000)
  expect(events.map(({ count }) => count)).toEqual([1, 4, 1])
  log.add(denial('a.test'))
  expect(events).toHaveLength(4)
  expect(log.total).toBe(7)
})

test('a scan of many hosts is a bounded number of events', () => {
  const { events, log } = makeLog()
  for (let i = 0; i < 10_000; i++) log.add(denial(`h${i}.test`))
  expect(events).toHaveLength(65)
  expect(events.at(-1)).toMatchObject({ host: '*', count: 1 })
  vi.advanceTimersByTime(10_000)
  expect(events).toHaveLength(66)
  expect(events.reduce((sum, { count }) => sum + count, 0)).toBe(10_000)
  vi.advanceTimersByTime(20_000)
  expect(vi.getTimerCount()).toBe(0)
})

test('closing tells what was counted and leaves no timer', () => {
  const { events, log } = makeLog()
  for (let i = 0; i < 3; i++) log.add(denial('a.test'))
  log.add(denial('b.test'))
  log.close()
  expect(events.map(({ host, count }) => `${host} ${count}`)).toEqual(['a.test 1', 'b.test 1', 'a.test 2'])
  expect(vi.getTimerCount()).toBe(0)
})
