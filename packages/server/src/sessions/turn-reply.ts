import {
  AshError,
  type DoneEventData,
  type ErrorEventData,
  isErrorCode,
  type TurnReply,
} from '@ash-ai/shared'
import { dataOf, type Frame } from './event-log.ts'
import type { AcceptedTurn } from './send-message.ts'

export const endsTurn = (frame: Frame, turnId: string) =>
  frame.sub === 0 && frame.turnId === turnId && (frame.type === 'done' || frame.type === 'error')

/** Waits for the end of a turn and says how it came out; throws the error that ended it. */
export async function turnReply(accepted: AcceptedTurn, gone: AbortSignal): Promise<TurnReply> {
  const { turnId, log } = accepted
  const after = { seq: (await accepted.begun) - 1, sub: 0 }
  let message: Frame | undefined
  for await (const frames of log.read(after, gone)) {
    for (const frame of frames) {
      if (frame.turnId !== turnId || frame.sub > 0) continue
      if (frame.type === 'message') message = frame
      if (endsTurn(frame, turnId)) return toReply(frame, message)
    }
  }
  if (gone.aborted) throw new AshError('interrupted', 'The client left before the turn ended')
  throw new AshError('internal_error', 'The log of the session could not be written')
}

function toReply(end: Frame, lastMessage: Frame | undefined): TurnReply {
  if (end.type === 'error') throw toError(JSON.parse(dataOf(end)) as ErrorEventData)
  const done = JSON.parse(dataOf(end)) as DoneEventData
  const message = lastMessage && (JSON.parse(dataOf(lastMessage)) as Record<string, unknown>)
  const result = message?.type === 'result' ? message : undefined
  return {
    ...done,
    result: typeof result?.result === 'string' ? result.result : null,
    message: result ?? null,
  }
}

function toError({ code, error }: ErrorEventData): AshError {
  return new AshError(isErrorCode(code) ? code : 'agent_failed', error)
}
