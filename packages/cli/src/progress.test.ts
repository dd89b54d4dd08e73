import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { whileWaiting, withProgress } from './progress.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

function output(isWatched: boolean): { isWatched: boolean; progress(text: string): void; lines: string[] } {
  const lines: string[] = []
  return { isWatched, lines, progress: (text) => void lines.push(text) }
}

test.each([
  [true, ['Pausing… 1 s', 'Pausing… 2 s', 'Pausing… 3 s']],
  [false, ['Pausing… 1 s']],
])('a wait is told second by second on a terminal (%s), once elsewhere', async (isWatched, told) => {
  const shown = output(isWatched)
  const work = Promise.withResolvers<string>()
  const waiting = whileWaiting(shown, 'Pausing', work.promise)
  vi.advanceTimersByTime(3000)
  work.resolve('done')
  expect(await waiting).toBe('done')
  vi.advanceTimersByTime(3000)
  expect(shown.lines).toEqual(told)
})

test('what takes a moment says nothing, and a failure ends the telling', async () => {
  const shown = output(true)
  expect(await whileWaiting(shown, 'Pausing', Promise.resolve(1))).toBe(1)
  await expect(whileWaiting(shown, 'Pausing', Promise.reject(new Error('no')))).rejects.toThrow('no')
  vi.advanceTimersByTime(5000)
  expect(shown.lines).toEqual([])
})

test.each([
  [true, ['Sent 1.0 KB of 3.0 KB', 'Sent 3.0 KB of 3.0 KB']],
  [false, []],
])('bytes are counted on a terminal (%s), ten times a second at most', async (isWatched, told) => {
  const shown = output(isWatched)
  async function* parts(): AsyncGenerator<Uint8Array> {
    for (const waitMs of [1000, 50, 60]) {
      vi.advanceTimersByTime(waitMs)
      yield new Uint8Array(1024)
    }
  }
  let bytes = 0
  for await (const part of withProgress(parts(), shown, 'Sent', 3072)) bytes += part.length
  expect(bytes).toBe(3072)
  expect(shown.lines).toEqual(told)
})
