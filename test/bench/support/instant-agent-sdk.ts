import { setTimeout as sleep } from 'node:timers/promises'
import { parsePrompt, turnMessages } from './turn-messages.ts'

interface UserMessage {
  message: { content: unknown }
}

/**
 * Stands where the agent SDK is, and answers at once: what is left of a turn's time is Ash's own. What it answers
 * is up to the prompt, see `emitPrompt`. An interrupt ends a turn as it does in the SDK.
 */
export function query({ prompt }: { prompt: AsyncIterable<UserMessage> }) {
  let interrupted = new AbortController()
  const closed = new AbortController()
  const messages = (async function* () {
    for await (const { message } of prompt) {
      interrupted = new AbortController()
      yield* answer(message.content, AbortSignal.any([interrupted.signal, closed.signal]))
    }
  })()
  return Object.assign(messages, {
    interrupt: async () => interrupted.abort(),
    setModel: async () => {},
    setPermissionMode: async () => {},
    close: () => closed.abort(),
  })
}

async function* answer(content: unknown, stop: AbortSignal): AsyncGenerator<object> {
  const emission = parsePrompt(content)
  let isFirst = true
  for (const message of turnMessages(emission)) {
    if (emission?.waitMs && !isFirst)
      await sleep(emission.waitMs, undefined, { signal: stop }).catch(() => {})
    if (stop.aborted) return yield INTERRUPTED
    yield message
    isFirst = false
  }
}

const INTERRUPTED = {
  type: 'result',
  subtype: 'error_during_execution',
  is_error: true,
  errors: ['interrupted'],
}
