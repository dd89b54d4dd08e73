import { turnMessages } from './turn-messages.ts'

/**
 * Stands where the agent SDK is, and answers at once with the messages of a short turn: what is left of a turn's
 * time is Ash's own.
 */
export function query({ prompt }: { prompt: AsyncIterable<unknown> }) {
  const messages = (async function* () {
    for await (const _ of prompt) yield* turnMessages()
  })()
  return Object.assign(messages, {
    interrupt: async () => {},
    setModel: async () => {},
    setPermissionMode: async () => {},
    close: () => {},
  })
}
