import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { DiskState } from './disk/disk-backend.ts'
import { DEFAULT_LIMITS } from './resource-limits.ts'
import { type LimitHit, LimitWatch } from './watch-limits.ts'

const counted = { oomKills: 0, processesRefused: 0 }
let diskState: DiskState = 'ok'
let outputExcesses = 0
let hits: LimitHit[] = []
let watch: LimitWatch
beforeEach(() => {
  vi.useFakeTimers()
  hits = []
  Object.assign(counted, { oomKills: 0, processesRefused: 0 })
  diskState = 'ok'
  outputExcesses = 0
  const counters = {
    hits: () => counted,
    diskState: async () => diskState,
    outputExcesses: () => outputExcesses,
  }
  watch = new LimitWatch(counters, DEFAULT_LIMITS, (hit) => hits.push(hit))
})
afterEach(() => {
  watch.stop()
  vi.useRealTimers()
})

test('nothing is reported while nothing happens', async () => {
  await vi.advanceTimersByTimeAsync(60_000)
  expect(hits).toEqual([])
})

test('the first hit is told at once, repeats are told together', async () => {
  counted.processesRefused = 1
  await vi.advanceTimersByTimeAsync(1_000)
  counted.processesRefused = 40
  await vi.advanceTimersByTimeAsync(5_000)
  expect(hits.map(({ code, count }) => [code, count])).toEqual([['process_limit', 1]])
  await vi.advanceTimersByTimeAsync(6_000)
  expect(hits.map(({ count }) => count)).toEqual([1, 39])
})

test('a death right after the kernel killed for memory is known as that, a later one is not', async () => {
  expect(await watch.hasJustKilled()).toBe(false)
  counted.oomKills = 1
  expect(await watch.hasJustKilled()).toBe(true)
  await vi.advanceTimersByTimeAsync(10_000)
  expect(await watch.hasJustKilled()).toBe(false)
})

test('a disk is told to be full once, and again when it was emptied and filled', async () => {
  diskState = 'full'
  await vi.advanceTimersByTimeAsync(60_000)
  expect(hits).toEqual([{ code: 'disk_full', resource: 'diskMb', limit: DEFAULT_LIMITS.diskMb, count: 1 }])
  diskState = 'ok'
  await vi.advanceTimersByTimeAsync(20_000)
  expect(hits).toHaveLength(1)
  diskState = 'full'
  await vi.advanceTimersByTimeAsync(2_000)
  expect(hits).toHaveLength(2)
})

test('output that was slowed down is told with the rate', async () => {
  outputExcesses = 1
  await vi.advanceTimersByTimeAsync(60_000)
  const limit = DEFAULT_LIMITS.outputMbPerSecond
  expect(hits).toEqual([{ code: 'output_limit', resource: 'outputMbPerSecond', limit, count: 1 }])
})
