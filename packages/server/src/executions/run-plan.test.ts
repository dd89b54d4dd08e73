import { expect, test } from 'vitest'
import { handlerContext, planRun, type RunSession } from './run-plan.ts'

const session: RunSession = {
  mode: 'persistent',
  languages: ['python', 'javascript', 'shell'],
  timeoutMs: 1234,
}
const ephemeral: RunSession = { ...session, mode: 'ephemeral' }
const what = (request: object, of = session) => planRun(request, of).what

test('code of a persistent session runs in a kernel, unless it is a shell script or is to be fresh', () => {
  expect(what({ code: '1' })).toMatchObject({ kind: 'code', kernel: 'default', language: 'python' })
  expect(what({ code: '1', kernel: 'k' })).toMatchObject({ kind: 'code', kernel: 'k' })
  expect(what({ code: '1', fresh: true })).toMatchObject({ kind: 'script', kernel: null })
  expect(what({ code: 'ls', language: 'shell' })).toMatchObject({ kind: 'script', kernel: null })
  expect(what({ code: '1' }, ephemeral)).toMatchObject({ kind: 'script', kernel: null })
  expect(what({ handler: 'def handler(e): pass' })).toMatchObject({ kind: 'handler', kernel: null })
})

test('only what starts fresh is run again by itself', () => {
  expect(what({ code: '1' }).retries).toBe(0)
  expect(what({ code: '1', retry: true }).retries).toBe(1)
  expect(what({ handler: 'x' }).retries).toBe(1)
  expect(what({ handler: 'x', retry: false }).retries).toBe(0)
})

test('a kernel cannot be named for what runs in none', () => {
  for (const request of [
    { handler: 'x', kernel: 'k' },
    { code: 'x', kernel: 'k', fresh: true },
    { code: 'x', kernel: 'k', language: 'shell' as const },
  ])
    expect(() => planRun(request, session)).toThrow(expect.objectContaining({ code: 'validation_failed' }))
})

test('a language that the session does not have is refused, and those that it has are named', () => {
  const plan = () => planRun({ code: '1', language: 'javascript' }, { ...session, languages: ['shell'] })
  expect(plan).toThrow(expect.objectContaining({ code: 'interpreter_missing' }))
  expect(plan).toThrow('shell')
})

test('of the time-outs that a request names the smallest counts, else that of the session', () => {
  const timeout = (request: object) => what({ handler: 'x', ...request }).timeout_ms
  expect(timeout({})).toBe(1234)
  expect(timeout({ timeout: 99_000 })).toBe(99_000)
  expect(timeout({ event: { __timeout: 7 } })).toBe(7000)
  expect(timeout({ event: { __timeout: 0.25 } })).toBe(250)
  expect(timeout({ event: { __timeout: 7 }, timeout: 5000 })).toBe(5000)
  expect(timeout({ event: { __timeout: 3 }, timeout: 5000 })).toBe(3000)
  expect(timeout({ event: { __timeout: 4000 } })).toBe(3_600_000)
  for (const broken of [0, -1, '7', null, Number.NaN])
    expect(timeout({ event: { __timeout: broken } })).toBe(300_000)
  expect(timeout({ event: { timeout: 1 } })).toBe(1234)
})

test('an event keeps its text and has its limit', () => {
  const event = { a: [0, false, null, ''], b: { c: 'ü' } }
  expect(planRun({ handler: 'x', event }, session).input.event).toBe(JSON.stringify(event))
  const large = { text: 'x'.repeat(10 * 1024 * 1024) }
  expect(() => planRun({ handler: 'x', event: large }, session)).toThrow(
    expect.objectContaining({ code: 'payload_too_large' }),
  )
})

test('code with NUL is refused', () => {
  expect(() => planRun({ code: 'a\0b' }, session)).toThrow(
    expect.objectContaining({ code: 'validation_failed' }),
  )
})

const row = { id: 'e1', session_id: 's1' }

test('a context has everything, the caller says what is different, and other keys are his own', () => {
  expect(handlerContext(row, undefined, 256)).toEqual({
    functionName: 'unknown-function',
    functionVersion: '$LATEST',
    requestId: 'e1',
    logGroupName: '/ash/unknown-function',
    logStreamName: 's1',
    memoryLimitMb: 256,
    invokedFunctionArn: 'arn:ash:function:unknown-function',
  })
  const given = {
    function_name: 'f',
    memory_limit_in_mb: 128,
    request_id: 'r',
    tenant: { a: 1 },
    function_version: 3,
  }
  expect(handlerContext(row, given, 256)).toMatchObject({
    functionName: 'f',
    functionVersion: '$LATEST',
    requestId: 'r',
    memoryLimitMb: 128,
    custom: { tenant: { a: 1 }, function_version: 3 },
  })
})
