import { expect, test } from 'vitest'
import { toOutcome } from './system-mapper.ts'

const RUN = {
  id: '1',
  sessionId: '2',
  status: 'completed',
  language: 'python',
  kind: 'code',
  hasResult: true,
  truncated: false,
  artifacts: [{ path: 'a/b.txt', size: 1, mimeType: 'text/plain', isKept: true }],
  artifactsComplete: true,
  attempt: 1,
  timeout: 1,
  createdAt: new Date(0).toISOString(),
} as const

test('results have short names, and what has none keeps its type', () => {
  const results = [
    { isValue: false, data: { 'image/png': 'aGk=' } },
    { isValue: true, data: { 'text/plain': '1', 'application/x-own': [1] } },
  ]
  const summary = { ...RUN, artifacts: [...RUN.artifacts] }
  expect(toOutcome(summary, { stdout: 'o', stderr: 'e' }, JSON.stringify(results))).toEqual({
    stdout: 'o',
    stderr: 'e',
    error: null,
    results: [
      { png: 'aGk=', is_main_result: false },
      { text: '1', 'application/x-own': [1], is_main_result: true },
    ],
    artifacts: ['a/b.txt'],
  })
})
