import { setTimeout as sleep } from 'node:timers/promises'
import { type PacedTurn, pieceOf } from './paced-turn.ts'

// Stands where the agent SDK is in the bridge. A prompt says how long the answer is and how fast it comes.

const SESSION_ID = '5a3e2f6c-91b4-4c7d-8d1e-2b7f0c9a6e35'

interface Prompt {
  message: { content: string }
}

export function query(request: {
  prompt: AsyncIterable<Prompt>
  options: { includePartialMessages?: boolean }
}) {
  const { prompt, options } = request
  const messages = (async function* () {
    for await (const { message } of prompt) {
      yield* turnMessages(JSON.parse(message.content) as PacedTurn, options.includePartialMessages === true)
    }
  })()
  return Object.assign(messages, {
    interrupt: async () => {},
    setModel: async () => {},
    setPermissionMode: async () => {},
    close: () => {},
  })
}

async function* turnMessages(turn: PacedTurn, hasPreviews: boolean) {
  yield { type: 'system', subtype: 'init', session_id: SESSION_ID }
  for (let index = 0; index < turn.pieces; index++) {
    if (turn.paceMs > 0) await sleep(turn.paceMs)
    const text = pieceOf(turn, index)
    if (hasPreviews) yield { type: 'stream_event', session_id: SESSION_ID, event: { delta: { text } } }
    yield {
      type: 'assistant',
      session_id: SESSION_ID,
      message: { role: 'assistant', content: [{ type: 'text', text }] },
    }
  }
  yield {
    type: 'result',
    subtype: 'success',
    is_error: false,
    session_id: SESSION_ID,
    result: turn.mark,
    stop_reason: 'end_turn',
    usage: { input_tokens: 1, output_tokens: 1 },
  }
}
