import { expect, test } from 'vitest'
import { canFollow, SESSION_STATUSES, statusesBefore } from './session-state.ts'

test('an ended session stays ended', () => {
  expect(SESSION_STATUSES.filter((status) => canFollow('ended', status))).toEqual([])
})

test('every status but ended can be ended', () => {
  expect(statusesBefore('ended')).toEqual(SESSION_STATUSES.filter((status) => status !== 'ended'))
})

test('a session becomes active from starting, paused or error, never from ended', () => {
  expect(statusesBefore('active')).toEqual(['starting', 'paused', 'error'])
})

test('nothing returns to starting while it is active', () => {
  expect(canFollow('active', 'starting')).toBe(false)
})
