import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { SandboxRecord, type SandboxRow, type SandboxStore } from './sandbox-store.ts'

const row = (id: string): SandboxRow => ({
  id,
  tenantId: 'default',
  sessionId: null,
  template: 'default',
  agentName: 'agent',
  agentVersion: 1,
  state: 'warming',
  createdAt: 1,
  lastUsedAt: 1,
})

let calls: string[] = []
/** What the next call does, in the place of succeeding. */
let outcomes: (() => Promise<void>)[] = []
const call = async (text: string) => {
  calls.push(text)
  await outcomes.shift()?.()
}
const store: SandboxStore = {
  put: ({ id, state }) => call(`put ${id} ${state}`),
  remove: (id) => call(`remove ${id}`),
  setStates: (changes) => call(`states ${changes.map(({ id, state }) => `${id} ${state}`).join()}`),
}
const fail = async () => {
  throw new Error('locked')
}

beforeEach(() => {
  vi.useFakeTimers()
  calls = []
  outcomes = []
})
afterEach(() => {
  vi.useRealTimers()
})

test('a row that changes while it is written is written again, and one that goes meanwhile stays gone', async () => {
  const record = new SandboxRecord(store)
  const { promise: isWritten, resolve: written } = Promise.withResolvers<void>()
  outcomes = [() => isWritten]
  const one = row('a')
  record.put(one)
  await vi.advanceTimersByTimeAsync(0)
  one.state = 'waiting'
  record.put(one)
  const other = row('b')
  record.put(other)
  record.remove(other)
  written()
  await vi.advanceTimersByTimeAsync(0)
  expect(calls).toEqual(['put a warming', 'put a waiting', 'remove b'])
})

test('what could not be stored is tried again, as it is by then', async () => {
  const record = new SandboxRecord(store)
  outcomes = [fail]
  const one = row('a')
  record.put(one)
  await vi.advanceTimersByTimeAsync(0)
  one.state = 'waiting'
  await vi.advanceTimersByTimeAsync(1_000)
  outcomes = [fail]
  record.note(one)
  await vi.advanceTimersByTimeAsync(1_000)
  one.state = 'running'
  await vi.advanceTimersByTimeAsync(1_000)
  await vi.advanceTimersByTimeAsync(10_000)
  expect(calls).toEqual(['put a warming', 'put a waiting', 'states a waiting', 'states a running'])
})

test('a flush stores what would have come a second later', async () => {
  const record = new SandboxRecord(store)
  record.note({ ...row('a'), state: 'running' })
  record.note({ ...row('b'), state: 'waiting' })
  await record.flush()
  expect(calls).toEqual(['states a running,b waiting'])
})
