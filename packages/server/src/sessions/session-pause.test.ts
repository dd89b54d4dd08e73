import { expect, test, vi } from 'vitest'
import type { LiveSession } from './live-sessions.ts'
import { cancelExecutions } from './session-pause.ts'

const liveWith = (live: Partial<LiveSession>) => ({ uses: 0, executions: undefined, ...live }) as LiveSession

test('code in a session is cancelled with the reason, and its call is over before the sandbox is', async () => {
  const reasons: string[] = []
  const live = liveWith({ uses: 1 })
  live.executions = {
    size: 1,
    cancelAll: async (reason) => {
      reasons.push(reason)
      setTimeout(() => live.uses--, 30)
    },
  }
  await cancelExecutions(live, 'was paused')
  expect([reasons, live.uses]).toEqual([['The session was paused'], 0])
})

test('where nothing runs nothing is cancelled', async () => {
  const cancelAll = vi.fn(async () => {})
  await cancelExecutions(liveWith({}), 'ended')
  await cancelExecutions(liveWith({ uses: 1, executions: { size: 0, cancelAll } }), 'ended')
  expect(cancelAll).not.toHaveBeenCalled()
})

test('code that cannot be cancelled does not hold up the end of its session for ever', async () => {
  const never = { size: 1, cancelAll: () => new Promise<void>(() => {}) }
  const startedMs = performance.now()
  await cancelExecutions(liveWith({ uses: 1, executions: never }), 'ended')
  expect(performance.now() - startedMs).toBeLessThan(10_000)
})
