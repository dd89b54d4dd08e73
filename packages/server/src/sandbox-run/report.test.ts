import { expect, test } from 'vitest'
import { EXIT, exitCodeOf } from './exit-codes.ts'
import { formatReport, type ReportOptions } from './report.ts'
import type { HandlerReport } from './run-handler.ts'

const metrics = {
  wallMs: 12.34,
  cpuMs: 5,
  peakMemoryBytes: 10 * 1024 * 1024,
  ioReadBytes: 0,
  ioWriteBytes: 0,
}
const limits = { backend: 'cgroup-v2', enforcement: {} } as unknown as HandlerReport['limits']
const report = (outcome: Partial<HandlerReport['outcome']> = {}): HandlerReport => ({
  outcome: { status: 'completed', results: [], truncated: false, metrics, isOver: false, ...outcome },
  stdout: '\x1b[31mred\n',
  stderr: '',
  limits,
})
const options: ReportOptions = {
  format: 'pretty',
  exitCode: 0,
  isQuiet: false,
  isVerbose: false,
  hasProfile: false,
  hasColors: false,
  isTerminal: false,
  timestamp: '2026-01-02T03:04:05.000Z',
}

test('sections that have something to say', async () => {
  const text = await formatReport(report({ result: '{"a":1}' }), { ...options, hasProfile: true })
  expect(text).toBe(
    'STDOUT\n\x1b[31mred\n\nRESULT\n{\n  "a": 1\n}\n\nMETRICS\n' +
      'duration      12.3 ms\ncpu time      5 ms\npeak memory   10 MB\n',
  )
})

test('on a terminal nothing from inside acts', async () => {
  const text = await formatReport(report({ result: '"\x9b1m"' }), { ...options, isTerminal: true })
  expect(text).toBe('STDOUT\n\\u001b[31mred\n\nRESULT\n"\\u009b1m"\n')
})

test('falsy results are results, none is null', async () => {
  for (const result of ['0', 'false', '""', '[]', 'null'])
    expect(await formatReport(report({ result }), { ...options, isQuiet: true })).toBe(`${result}\n`)
  expect(await formatReport(report(), { ...options, isQuiet: true })).toBe('')
  const json = JSON.parse(await formatReport(report(), { ...options, format: 'json', isVerbose: true }))
  expect(json).toMatchObject({ result: null, timestamp: options.timestamp })
})

test.each([
  ['completed', undefined, EXIT.ok],
  ['timeout', undefined, EXIT.timeout],
  ['cancelled', undefined, EXIT.interrupted],
  ['failed', { name: 'ValueError', message: '' }, EXIT.failed],
  ['failed', { name: 'OutOfMemory', message: '' }, EXIT.outOfMemory],
  ['failed', { name: 'HandlerNotFound', message: '' }, EXIT.noHandler],
  ['failed', { name: 'SyntaxError', message: '', traceback: '  File "<handler>", line 1' }, EXIT.noHandler],
  [
    'failed',
    { name: 'SyntaxError', message: '', traceback: 'Traceback (most recent call last):' },
    EXIT.failed,
  ],
] as const)('%s %o ends with %i', (status, error, code) => {
  expect(exitCodeOf({ status, ...(error && { error }) })).toBe(code)
})
