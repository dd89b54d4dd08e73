import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { RunOutput } from './run-output.ts'

/** A log that remembers, and that is full, slow or broken as the test wants it. */
function outputTo(
  log: { write?: () => Promise<void> | undefined; maxLogChars?: number; attempt?: number } = {},
) {
  const entries: { stream: string; text: string; attempt?: number }[] = []
  const output = new RunOutput({
    log: {
      totalChars: 0,
      write: (_type, _turn, data) => {
        entries.push(JSON.parse(data))
        return log.write?.()
      },
    },
    executionId: 'e1',
    attempt: log.attempt ?? 1,
    maxLogChars: log.maxLogChars ?? 1e9,
  })
  return { output, entries }
}

test('pieces are collected, and a change of stream keeps the order', () => {
  const { output, entries } = outputTo()
  for (const text of ['a', 'b']) void output.take({ stream: 'stdout', text })
  void output.take({ stream: 'stderr', text: 'c' })
  void output.take({ stream: 'stdout', text: 'd' })
  void output.flush()
  expect(entries.map(({ stream, text }) => [stream, text])).toEqual([
    ['stdout', 'ab'],
    ['stderr', 'c'],
    ['stdout', 'd'],
  ])
  expect(output.kept).toEqual({ stdout: 'abd', stderr: 'c' })
})

test('what nothing follows is written by itself', async () => {
  const { output, entries } = outputTo()
  void output.take({ stream: 'stdout', text: 'alone' })
  for (let tries = 0; entries.length === 0 && tries < 100; tries++) await sleep(10)
  expect(entries).toMatchObject([{ executionId: 'e1', stream: 'stdout', text: 'alone' }])
})

test('an entry has at most 64 KB, and who writes much waits for the log', async () => {
  const slow = Promise.withResolvers<void>()
  const { output, entries } = outputTo({ write: () => slow.promise })
  const waited = output.take({ stream: 'stdout', text: 'x'.repeat(64 * 1024) })
  expect(waited).toBeInstanceOf(Promise)
  slow.resolve()
  await waited
  void output.take({ stream: 'stdout', text: 'y'.repeat(40 * 1024) })
  void output.take({ stream: 'stdout', text: 'z'.repeat(40 * 1024) })
  void output.flush()
  expect(Math.max(...entries.map(({ text }) => text.length))).toBe(64 * 1024)
})

test('much output is not remembered', () => {
  const { output } = outputTo()
  for (let piece = 0; piece < 5; piece++) void output.take({ stream: 'stdout', text: 'x'.repeat(64 * 1024) })
  expect(output.kept).toBeUndefined()
  expect(output.isTruncated).toBe(false)
})

test('a full log drops output and says so', () => {
  const { output, entries } = outputTo({ maxLogChars: 10 })
  void output.take({ stream: 'stdout', text: 'more than ten characters' })
  void output.flush()
  expect(entries).toEqual([])
  expect(output.isTruncated).toBe(true)
})

test('a log that cannot be written does not fail the run', async () => {
  const late = outputTo({ write: () => Promise.reject(new Error('disk')) })
  await late.output.take({ stream: 'stdout', text: 'x'.repeat(64 * 1024) })
  expect(late.output.isTruncated).toBe(true)
  const atOnce = outputTo({
    write: () => {
      throw new Error('disk')
    },
  })
  void atOnce.output.take({ stream: 'stdout', text: 'x' })
  void atOnce.output.flush()
  expect(atOnce.output.isTruncated).toBe(true)
})

test('a later attempt is named in its entries', () => {
  const { output, entries } = outputTo({ attempt: 2 })
  void output.take({ stream: 'stderr', text: 'x' })
  void output.flush()
  expect(entries).toEqual([{ executionId: 'e1', stream: 'stderr', text: 'x', attempt: 2 }])
})
