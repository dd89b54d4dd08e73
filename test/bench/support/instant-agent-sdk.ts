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
  // Of its own for each wait: an instant turn must not pay for what it does not use.
  let waiting = new AbortController()
  let isStopped = false
  const stop = async () => {
    isStopped = true
    waiting.abort()
  }
  async function* answer(content: unknown): AsyncGenerator<object> {
    const emission = parsePrompt(content)
    let isFirst = true
    for (const message of turnMessages(emission)) {
      if (emission?.waitMs && !isFirst) {
        waiting = new AbortController()
        await sleep(emission.waitMs, undefined, { signal: waiting.signal }).catch(() => {})
      }
      if (isStopped) return yield INTERRUPTED
      yield message
      isFirst = false
    }
  }
  const messages = (async function* () {
    for await (const { message } of prompt) {
      isStopped = false
      yield* answer(message.content)
    }
  })()
  const ignore = async () => {}
  return Object.assign(messages, {
    interrupt: stop,
    setModel: ignore,
    setPermissionMode: ignore,
    close: () => void stop(),
  })
}

const INTERRUPTED = {
  type: 'result',
  subtype: 'error_during_execution',
  is_error: true,
  errors: ['interrupted'],
}
