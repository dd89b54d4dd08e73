import { expect, test } from 'vitest'
import { isLogType, toLines } from './log-lines.ts'

test.each([
  ['output', { executionId: 'e', stream: 'stdout', text: 'one\r\ntwo\n' }, ['one', 'two']],
  ['log', { level: 'info', source: 'pip', text: 'a\nb' }, ['[pip] a', '[pip] b']],
  ['log', { level: 'info', text: 'plain' }, ['plain']],
  [
    'limit',
    { code: 'oom_killed', resource: 'memory', limit: 512, count: 3 },
    ['limit met: memory 512 (oom_killed, 3 times)'],
  ],
  [
    'egress_denied',
    { host: 'a.example', port: 443, reason: 'no', setting: 'network: ["a.example"]', count: 1 },
    ['refused: a.example:443, network: ["a.example"] would allow it'],
  ],
  ['error', { code: 'sandbox_died', error: 'gone', retryable: true }, ['error sandbox_died: gone']],
] as const)('%s as lines', (type, data, lines) => {
  expect(toLines(type, JSON.stringify(data))).toEqual(lines)
})

test('conversations are no part of them', () => {
  expect(isLogType('message')).toBe(false)
  expect(isLogType('output')).toBe(true)
})
