import { expect, test, vi } from 'vitest'
import { asGuest, beginLeaving, type LiveSession, LiveSessions } from './live-sessions.ts'

const liveSession = (sessionId: string, isClosed = false, gone = Promise.resolve()) =>
  ({
    fence: { sessionId },
    sandbox: { bridge: { isClosed } },
    gone,
    guests: new Set(),
  }) as unknown as LiveSession

const noThaw = async () => {
  throw new Error('nothing is frozen')
}

test('callers that want a session awake at the same time share one start', async () => {
  const sessions = new LiveSessions()
  let starts = 0
  const start = async () => {
    starts++
    return liveSession('a')
  }
  const [first, second] = await Promise.all([
    sessions.wake('a', start, noThaw),
    sessions.wake('a', start, noThaw),
  ])
  expect(first).toBe(second)
  expect(await sessions.wake('a', start, noThaw)).toBe(first)
  expect(starts).toBe(1)
})

test('a failed start is told to everyone who waited and can be tried again', async () => {
  const sessions = new LiveSessions()
  const failing = async (): Promise<LiveSession> => {
    throw new Error('no sandbox')
  }
  const tries = await Promise.allSettled([
    sessions.wake('a', failing, noThaw),
    sessions.wake('a', failing, noThaw),
  ])
  expect(tries.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  expect(await sessions.wake('a', async () => liveSession('a'), noThaw)).toBeDefined()
})

test('changes of one session wait for each other; those of another do not', async () => {
  const sessions = new LiveSessions()
  const { promise: blocked, resolve: unblock } = Promise.withResolvers<void>()
  const order: string[] = []
  const first = sessions.exclusive('a', async () => {
    await blocked
    order.push('first')
  })
  const second = sessions.exclusive('a', async () => {
    order.push('second')
  })
  await sessions.exclusive('b', async () => {
    order.push('other')
  })
  unblock()
  await Promise.all([first, second])
  expect(order).toEqual(['other', 'first', 'second'])
})

test('a change after a failed one still happens', async () => {
  const sessions = new LiveSessions()
  const failing = sessions.exclusive('a', async () => {
    throw new Error('x')
  })
  const after = sessions.exclusive('a', async () => 'done')
  await expect(failing).rejects.toThrow('x')
  expect(await after).toBe('done')
})

test('a session whose sandbox died is cleared away before the next start', async () => {
  const sessions = new LiveSessions()
  const { promise: gone, resolve: cleared } = Promise.withResolvers<void>()
  await sessions.wake('a', async () => liveSession('a', true, gone), noThaw)
  const order: string[] = []
  const start = async () => {
    order.push('start')
    return liveSession('a')
  }
  const waking = sessions.wake('a', start, noThaw)
  order.push('cleared')
  cleared()
  await waking
  expect(order).toEqual(['cleared', 'start'])
})

test('only one caller releases a session', async () => {
  const sessions = new LiveSessions()
  const live = await sessions.wake('a', async () => liveSession('a'), noThaw)
  expect(sessions.release(live)).toBe(true)
  expect(sessions.release(live)).toBe(false)
})

test('after closing nothing wakes up', async () => {
  const sessions = new LiveSessions()
  await sessions.close()
  await expect(sessions.wake('a', async () => liveSession('a'), noThaw)).rejects.toMatchObject({
    code: 'server_stopping',
  })
})

test('a frozen session is thawed once, and one that is leaving is waited for', async () => {
  const sessions = new LiveSessions()
  const live = await sessions.wake('a', async () => liveSession('a'), noThaw)
  live.isPaused = true
  let thaws = 0
  const thaw = async () => {
    thaws++
    live.isPaused = false
  }
  const never = async (): Promise<LiveSession> => {
    throw new Error('it has a sandbox')
  }
  expect(sessions.awake('a')).toBeUndefined()
  await Promise.all([sessions.wake('a', never, thaw), sessions.wake('a', never, thaw)])
  expect([thaws, sessions.awake('a')]).toEqual([1, live])
  live.isLeaving = true
  const leaving = sessions.exclusive('a', async () => {
    sessions.release(live)
  })
  const next = liveSession('a')
  expect(await sessions.wake('a', async () => next, noThaw)).toBe(next)
  await leaving
})

test('guests are sent away when the session is leaving, also one that comes late', async () => {
  const live = liveSession('a')
  const stay = () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    return asGuest(live, resolve, () => promise)
  }
  const early = stay()
  const fail = () => Promise.reject(new Error('lost'))
  await expect(asGuest(live, vi.fn(), fail)).rejects.toThrow('lost')
  expect(live.guests.size).toBe(1)
  beginLeaving(live)
  await Promise.all([early, stay()])
  expect(live.guests.size).toBe(0)
})
