import { Execution, ExecutionSummary } from '@ash-ai/shared'
import { expect, test } from 'vitest'
import { executionEvent, executionJson, toSummary } from './execution-reply.ts'
import { executionRow } from './testing/execution-rows.ts'

const parse = (row: ReturnType<typeof executionRow>, output = { stdout: '', stderr: '' }) =>
  Execution.strict().parse(JSON.parse(executionJson(row, output)))

test('an execution that waits says only that', () => {
  const row = executionRow()
  expect(parse(row)).toEqual({
    id: row.id,
    sessionId: row.session_id,
    status: 'pending',
    language: 'python',
    kind: 'script',
    stdout: '',
    stderr: '',
    result: null,
    hasResult: false,
    results: [],
    truncated: false,
    artifacts: [],
    artifactsComplete: true,
    attempt: 1,
    timeout: 1000,
    createdAt: new Date(row.created_at).toISOString(),
  })
})

test.each(['null', '0', 'false', '""', '{}', '[]', '{"a":"}"}'])(
  'a result of %s is that result',
  (result) => {
    const row = executionRow({ status: 'completed', result })
    expect(parse(row)).toMatchObject({ result: JSON.parse(result), hasResult: true })
  },
)

test('one that has ended has all of it', () => {
  const row = executionRow({
    status: 'failed',
    kind: 'code',
    kernel: 'default',
    is_new_kernel: 0,
    results: '[{"isValue":true,"data":{"text/plain":"1"}}]',
    error: '{"name":"E","message":"m","traceback":"t"}',
    exit_code: 0,
    signal: 'SIGKILL',
    truncated: 1,
    artifacts:
      '[{"path":"a","size":1,"mimeType":"text/plain","sha256":"x","file":"0"},{"path":"b","size":9,"mimeType":"text/plain"}]',
    artifacts_until: 5,
    artifacts_complete: 0,
    metrics: '{"wallMs":1,"cpuMs":2,"peakMemoryBytes":3,"ioReadBytes":4,"ioWriteBytes":5}',
    path: 'warm',
    started_at: 1,
    finished_at: 2,
  })
  const execution = parse(row, { stdout: '"\n', stderr: 'ü' })
  expect(execution).toMatchObject({
    isNewKernel: false,
    exitCode: 0,
    stdout: '"\n',
    stderr: 'ü',
    truncated: true,
  })
  expect(execution.artifacts.map(({ isKept }) => isKept)).toEqual([true, false])
  expect(execution.artifacts[0]).not.toHaveProperty('file')
  const forgotten = toSummary({ ...row, has_result: 0, artifacts_until: null })
  expect(ExecutionSummary.parse(forgotten).artifacts.map(({ isKept }) => isKept)).toEqual([false, false])
})

test('the log hears of the error without its traceback, and only at the end', () => {
  const error = '{"name":"E","message":"m","traceback":"t"}'
  const ended = JSON.parse(executionEvent(executionRow({ status: 'crashed', error, attempt: 2 })))
  expect(ended).toMatchObject({ status: 'crashed', attempt: 2, error: { name: 'E', message: 'm' } })
  expect(ended.error).not.toHaveProperty('traceback')
})
