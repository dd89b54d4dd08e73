import { expect, test } from 'vitest'
import type { EventLog } from '../sessions/event-log.ts'
import { sessionRow } from '../sessions/testing/session-rows.ts'
import { Executions } from './executions.ts'
import { Job } from './job.ts'
import { executionRow } from './testing/execution-rows.ts'

const MB = 1024 * 1024
const log = { lastSeq: 0 } as EventLog

function newJob(runs: Executions, sessionId: string, size: number): Job {
  const row = executionRow({ session_id: sessionId })
  const session = sessionRow({ id: sessionId })
  const place = runs.enter(row)
  const job = new Job({
    row,
    session,
    log,
    place,
    size,
    input: {},
    maxLogChars: 1,
    isRefusable: false,
    ownsSession: false,
  })
  runs.add(job)
  return job
}

test('what waits may hold so much in a session, but one is always taken', () => {
  const runs = new Executions()
  runs.assertRoom('a', 100 * MB)
  const first = newJob(runs, 'a', 40 * MB)
  runs.assertRoom('a', 20 * MB)
  expect(() => runs.assertRoom('a', 30 * MB)).toThrow(expect.objectContaining({ code: 'queue_full' }))
  runs.assertRoom('b', 30 * MB)
  first.row = { ...first.row, status: 'running' }
  runs.assertRoom('a', 60 * MB)
})

test('what waits may hold so much in all', () => {
  const runs = new Executions()
  for (let session = 0; session < 8; session++) newJob(runs, `s${session}`, 60 * MB)
  expect(() => runs.assertRoom('another', 40 * MB)).toThrow(expect.objectContaining({ code: 'queue_full' }))
  runs.assertRoom('another', 20 * MB)
})

test('a kernel is a lane of its own, everything fresh in a session is another', () => {
  const runs = new Executions()
  const kernel = { session_id: 'a', language: 'python', kernel: 'k' } as const
  const [first, second] = [runs.enter(kernel), runs.enter(kernel)]
  expect([first.isWaiting, second.isWaiting]).toEqual([false, true])
  expect(runs.waitingFor(kernel)).toBe(1)
  const others = [
    { ...kernel, kernel: 'other' },
    { ...kernel, language: 'javascript' },
    { ...kernel, session_id: 'b' },
    ...Array(10).fill({ ...kernel, kernel: null }),
  ] as const
  expect(others.map((other) => runs.enter(other).isWaiting)).toEqual(others.map(() => false))
  expect(runs.enter({ ...kernel, kernel: null }).isWaiting).toBe(true)
  first.leave()
  expect(runs.waitingFor(kernel)).toBe(0)
  second.leave()
  expect(runs.enter(kernel).isWaiting).toBe(false)
})

test('nothing is accepted any more once they are stopped', () => {
  const runs = new Executions()
  runs.assertRunning()
  runs.stop()
  expect(() => runs.assertRunning()).toThrow(expect.objectContaining({ code: 'server_stopping' }))
})

test('changes of a row come one after another, also after one that failed', async () => {
  const job = newJob(new Executions(), 'a', 1)
  const order: string[] = []
  const slow = Promise.withResolvers<void>()
  const first = job.write(async () => {
    await slow.promise
    order.push('first')
    throw new Error('lost')
  })
  const second = job.write(async () => order.push('second'))
  slow.resolve()
  await expect(first).rejects.toThrow('lost')
  await second
  expect(order).toEqual(['first', 'second'])
})

test('a place that is left twice does not take the lane of those who came later', () => {
  const runs = new Executions()
  const kernel = { session_id: 'a', language: 'python', kernel: 'k' } as const
  const first = runs.enter(kernel)
  first.leave()
  expect(runs.enter(kernel).isWaiting).toBe(false)
  first.leave()
  expect(runs.enter(kernel).isWaiting).toBe(true)
})

test('of two who want the only run of a session one gets it', () => {
  const runs = new Executions()
  const free = runs.reserve('a')
  expect(free).toBeDefined()
  expect(runs.reserve('a')).toBeUndefined()
  expect(runs.reserve('b')).toBeDefined()
  free?.()
  newJob(runs, 'a', 1)
  expect(runs.reserve('a')).toBeUndefined()
})
