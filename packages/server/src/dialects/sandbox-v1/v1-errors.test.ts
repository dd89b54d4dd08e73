import { AshError, ERRORS, type ErrorCode } from '@ash-ai/shared'
import { expect, test } from 'vitest'
import { toErrorReply } from '../../http/error-handler.ts'
import { toV1Error } from './v1-errors.ts'

const translate = (code: ErrorCode) =>
  toV1Error(toErrorReply(new AshError(code, 'what happened'), 'request-1'))

test.each(Object.keys(ERRORS) as ErrorCode[])('%s has a name, a reason and a way on', (code) => {
  const { status, body } = translate(code)
  expect(status).toBeGreaterThanOrEqual(400)
  expect(body).toEqual({
    error_code: expect.stringMatching(/^Sandbox\.[A-Z][A-Za-z]+$/),
    description: expect.stringMatching(/\.$/),
    error_detail: 'what happened',
    solution: expect.stringMatching(/\.$/),
    request_id: 'request-1',
  })
})

test.each([
  ['validation_failed', 400, 'InvalidParameter'],
  ['session_not_found', 404, 'SessionNotFound'],
  ['execution_not_found', 404, 'ExecutionNotFound'],
  ['pool_full', 503, 'TooManyRequestsExection'],
  ['queue_full', 503, 'TooManyRequestsExection'],
  ['sandbox_died', 502, 'ExecException'],
  ['internal_error', 500, 'InternalError'],
  ['provider_unavailable', 503, 'NotInitialized'],
  ['session_ended', 409, 'StateConflict'],
] as const)('%s is %i, Sandbox.%s', (code, status, name) => {
  expect(translate(code)).toMatchObject({ status, body: { error_code: `Sandbox.${name}` } })
})
