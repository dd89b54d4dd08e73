import { expect, test } from 'vitest'
import { readRunSettings } from './run-settings.ts'

test('a session older than executions can run everything, for the usual time', () => {
  expect(readRunSettings({ run_settings: '{}' })).toEqual({
    languages: ['python', 'javascript', 'shell'],
    timeoutMs: 300_000,
    packages: {},
  })
})

test('what a session has kept of its template comes back', () => {
  const kept = { languages: ['python'], timeoutMs: 5, runtime: 'python3.11', packages: { pip: ['six'] } }
  expect(readRunSettings({ run_settings: JSON.stringify(kept) })).toEqual(kept)
})
