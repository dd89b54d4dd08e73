import { expect, test } from 'vitest'
import { PermissionAnswer, PermissionSettings } from './permission-schemas.ts'

test.each([
  [{}],
  [{ ask: false }],
  [{ ask: true, timeoutMs: 1, onTimeout: 'interrupt' }],
  [{ ask: [] }],
  [{ ask: ['Bash', 'mcp__git-hub__*', '*'] }],
])('%j is a setting', (settings) => {
  expect(PermissionSettings.parse(settings)).toEqual(settings)
})

test.each([
  [{ ask: 'Bash' }],
  [{ ask: [''] }],
  [{ ask: ['Bash(rm:*)'] }], // A rule of the SDK's settings: taken for a name it would match nothing.
  [{ ask: Array(101).fill('Bash') }],
  [{ timeoutMs: 0 }],
  [{ timeoutMs: 2 ** 31 }],
  [{ onTimeout: 'allow' }],
  [{ asks: true }],
])('%j is none', (settings) => {
  expect(PermissionSettings.safeParse(settings).success).toBe(false)
})

test('an input that could not be written again is no answer', () => {
  const nested = (depth: number) => JSON.parse(`${'{"a":'.repeat(depth)}0${'}'.repeat(depth)}`)
  const isAnswer = (updatedInput: unknown) =>
    PermissionAnswer.safeParse({ behavior: 'allow', updatedInput }).success
  expect(isAnswer(nested(64))).toBe(true)
  expect(isAnswer(nested(65))).toBe(false)
  expect(isAnswer(nested(100_000))).toBe(false)
  expect(isAnswer({ text: 'x'.repeat(262_000) })).toBe(true)
  expect(isAnswer({ text: 'x'.repeat(263_000) })).toBe(false)
})
