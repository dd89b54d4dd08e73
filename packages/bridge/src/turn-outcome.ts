import type { ErrorCode, TurnDone } from '@ash-ai/shared'
import type { SDKMessage } from './agent-sdk.ts'

export type ResultMessage = Extract<SDKMessage, { type: 'result' }>

/** Why a turn failed, as a code of the error table. */
export class TurnFailure extends Error {
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string) {
    super(message)
    this.code = code
  }
}

/** Limits that the caller set; reaching one ends the turn as asked. */
const LIMITS: Record<string, string> = {
  error_max_turns: 'max_turns',
  error_max_budget_usd: 'max_budget_usd',
}

/**
 * What the SDK's result means. The SDK calls a failed API request `success` with `is_error`, and an interrupt
 * an error, so neither field decides alone.
 */
export function turnOutcome(
  result: ResultMessage,
  wasInterrupted: boolean,
): Pick<TurnDone, 'stopReason' | 'usage'> {
  const { usage } = result
  if (wasInterrupted && result.subtype !== 'success') return { stopReason: 'interrupted', usage }
  const limit = LIMITS[result.subtype]
  if (limit !== undefined) return { stopReason: limit, usage }
  if (result.is_error) throw failureOf(result)
  return { stopReason: result.stop_reason ?? 'end_turn', usage }
}

function failureOf(result: ResultMessage): TurnFailure {
  const text = result.subtype === 'success' ? result.result : result.errors.join('; ')
  const isApiError =
    result.terminal_reason === 'api_error' || ('api_error_status' in result && result.api_error_status)
  return new TurnFailure(isApiError ? 'model_api_error' : 'agent_failed', text || result.subtype)
}
