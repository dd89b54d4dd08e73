import { expect, test } from 'vitest'
import { schedule } from './schedule.ts'

const openSession = { id: 's' }

test('whoever has an open session gets it, whatever else is ready', () => {
  const wanted = { mode: 'persistent' as const, agentId: 'ada', openSession, spares: 3 }
  expect(schedule(wanted)).toEqual({ path: 'reuse', sessionId: 's' })
})

test('a session is shared only by name, and never one for a single execution', () => {
  expect(schedule({ mode: 'persistent', openSession, spares: 0 })).toEqual({ path: 'cold' })
  expect(schedule({ mode: 'ephemeral', agentId: 'ada', openSession, spares: 1 })).toEqual({ path: 'warm' })
})

test('a spare goes before a new sandbox', () => {
  expect(schedule({ mode: 'persistent', agentId: 'ada', spares: 1 })).toEqual({ path: 'warm' })
  expect(schedule({ mode: 'ephemeral', spares: 0 })).toEqual({ path: 'cold' })
})
