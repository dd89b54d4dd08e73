import { type BridgeEvent, isToolInput, MAX_TOOL_INPUT_CHARS, type PermissionDecision } from '@ash-ai/shared'
import type { CanUseTool, PermissionResult } from './agent-sdk.ts'

const MAX_REASON_CHARS = 1_000

type PermissionEvent = Extract<BridgeEvent, { ev: 'permission_request' | 'permission_withdrawn' }>
export type SendPermissionEvent = (
  event: PermissionEvent extends infer Event ? WithoutId<Event> : never,
) => Promise<void> | undefined
type WithoutId<Event> = Event extends unknown ? Omit<Event, 'id'> : never

/** What the agent has asked during one turn and waits for. It may wait for any time: the host has the deadline. */
export class PermissionRequests {
  readonly #send: SendPermissionEvent
  readonly #waiting = new Map<string, (decision: PermissionDecision) => void>()
  #isOver = false

  constructor(send: SendPermissionEvent) {
    this.#send = send
  }

  /** Asks the host. Resolves with its decision, or with a refusal once the SDK needs none any more. */
  async ask(
    ...[tool, input, { signal, toolUseID, decisionReason }]: Parameters<CanUseTool>
  ): Promise<PermissionResult> {
    if (this.#isOver || signal.aborted) return deny(TURN_OVER)
    if (!isToolInput(input)) return deny(TOO_LARGE)
    const requestId = crypto.randomUUID()
    const { promise: decision, resolve } = Promise.withResolvers<PermissionDecision>()
    this.#waiting.set(requestId, resolve)
    const withdraw = () => {
      if (!this.answer(requestId, deny(TURN_OVER))) return
      void this.#send({ ev: 'permission_withdrawn', requestId })
    }
    signal.addEventListener('abort', withdraw)
    try {
      await this.#send({
        ev: 'permission_request',
        requestId,
        kind: tool === 'AskUserQuestion' ? 'question' : 'permission',
        tool,
        input,
        toolUseId: toolUseID,
        ...(decisionReason && { reason: decisionReason.slice(0, MAX_REASON_CHARS) }),
      })
      return await decision
    } finally {
      signal.removeEventListener('abort', withdraw)
    }
  }

  /** False where nobody waits for this answer, or no longer. */
  answer(requestId: string, decision: PermissionDecision): boolean {
    const resolve = this.#waiting.get(requestId)
    this.#waiting.delete(requestId)
    resolve?.(decision)
    return resolve !== undefined
  }

  /** The turn is over: what still waits, for example in the background, is refused. */
  close(): void {
    this.#isOver = true
    for (const requestId of [...this.#waiting.keys()]) this.answer(requestId, deny(TURN_OVER))
  }
}

export const TURN_OVER = 'Nobody can be asked: the turn is over.'
const TOO_LARGE = `The input is too large to ask about it (at most ${MAX_TOOL_INPUT_CHARS} characters). Do it in smaller parts.`

export const deny = (message: string) => ({ behavior: 'deny' as const, message })
