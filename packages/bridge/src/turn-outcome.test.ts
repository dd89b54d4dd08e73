import { expect, test } from 'vitest'
import { type ResultMessage, TurnFailure, turnOutcome } from './turn-outcome.ts'

const USAGE = { input_tokens: 1, output_tokens: 2 }

const success = (more: object = {}) =>
  ({
    type: 'result',
    subtype: 'success',
    is_error: false,
    result: 'hello',
    usage: USAGE,
    ...more,
  }) as unknown as ResultMessage
const failure = (subtype: string, more: object = {}) =>
  ({
    type: 'result',
    subtype,
    is_error: true,
    errors: ['one', 'two'],
    usage: USAGE,
    ...more,
  }) as unknown as ResultMessage

test.each([
  ['a plain answer', success({ stop_reason: 'end_turn' }), false, 'end_turn'],
  ['an answer without a reason', success({ stop_reason: null }), false, 'end_turn'],
  ['an answer cut by its length', success({ stop_reason: 'max_tokens' }), false, 'max_tokens'],
  ['a refusal', success({ stop_reason: 'refusal' }), false, 'refusal'],
  [
    'an answer that was complete before the interrupt',
    success({ stop_reason: 'end_turn' }),
    true,
    'end_turn',
  ],
  [
    'an interrupted stream',
    failure('error_during_execution', { terminal_reason: 'aborted_streaming' }),
    true,
    'interrupted',
  ],
  [
    'an interrupted tool',
    failure('error_during_execution', { terminal_reason: 'aborted_tools' }),
    true,
    'interrupted',
  ],
  ['the limit of turns', failure('error_max_turns'), false, 'max_turns'],
  [
    'the limit of turns, not marked as an error',
    failure('error_max_turns', { is_error: false }),
    false,
    'max_turns',
  ],
  ['the limit of cost', failure('error_max_budget_usd'), false, 'max_budget_usd'],
])('%s ends a turn', (_, result, wasInterrupted, stopReason) => {
  expect(turnOutcome(result, wasInterrupted)).toEqual({ stopReason, usage: USAGE })
})

test.each([
  [
    'a refused API call, which the SDK calls a success',
    success({
      is_error: true,
      result: 'API Error: 401',
      terminal_reason: 'api_error',
      api_error_status: 401,
    }),
    false,
    'model_api_error',
    'API Error: 401',
  ],
  [
    'an API call that failed without a status',
    success({ is_error: true, result: 'API Error', terminal_reason: 'api_error' }),
    false,
    'model_api_error',
    'API Error',
  ],
  [
    'an API status without a reason',
    success({ is_error: true, result: 'API Error', api_error_status: 529 }),
    false,
    'model_api_error',
    'API Error',
  ],
  [
    'an API error after an interrupt',
    success({ is_error: true, result: 'API Error', terminal_reason: 'api_error' }),
    true,
    'model_api_error',
    'API Error',
  ],
  [
    'an API error with an empty text',
    success({ is_error: true, result: '', api_error_status: 500 }),
    false,
    'model_api_error',
    'success',
  ],
  ['an error of the SDK', failure('error_during_execution'), false, 'agent_failed', 'one; two'],
  [
    'an error without a text',
    failure('error_during_execution', { errors: [] }),
    false,
    'agent_failed',
    'error_during_execution',
  ],
  [
    'output that never matched its schema',
    failure('error_max_structured_output_retries'),
    false,
    'agent_failed',
    'one; two',
  ],
  ['an unsuccessful success', success({ is_error: true, result: 'odd' }), false, 'agent_failed', 'odd'],
])('%s fails a turn', (_, result, wasInterrupted, code, message) => {
  const outcome = () => turnOutcome(result, wasInterrupted)
  expect(outcome).toThrow(TurnFailure)
  expect(outcome).toThrow(expect.objectContaining({ code, message }))
})
