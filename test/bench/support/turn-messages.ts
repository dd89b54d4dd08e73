const SESSION_ID = '3f0c6a52-6f2b-4a55-9d3e-0d5a4c1b7e90'
const ANSWER = 'An answer of a usual length. '.repeat(10)

/** What a prompt asks the stand-in for the agent SDK to send. */
export interface Emission {
  /** Messages before the result. */
  count: number
  /** Bytes of JSON of each of them; at least about 150. */
  bytes: number
  /** Pause before each of them but the first. */
  waitMs?: number
}

/**
 * The prompt that asks for it: `emit {"count":10000,"bytes":200,"waitMs":0}`. Message i is then `emittedMessage(i, bytes)`,
 * the same in every run, and a result ends the turn. Any other prompt gets a short answer of three messages.
 */
export const emitPrompt = (emission: Emission) => `emit ${JSON.stringify(emission)}`

export function parsePrompt(content: unknown): Emission | undefined {
  const [, json] = (typeof content === 'string' && /^emit (\{.*\})$/.exec(content)) || []
  return json === undefined ? undefined : (JSON.parse(json) as Emission)
}

/** The messages of a turn in their order; how long to wait between them is the caller's business. */
export function* turnMessages(emission?: Emission): Generator<object> {
  if (!emission) {
    const tools = Array.from({ length: 30 }, (_, index) => `tool-${index}`)
    yield {
      type: 'system',
      subtype: 'init',
      session_id: SESSION_ID,
      cwd: '/workspace',
      tools,
      model: 'instant',
    }
    yield assistantMessage(ANSWER)
  }
  for (let index = 0; index < (emission?.count ?? 0); index++)
    yield emittedMessage(index, emission?.bytes ?? 0)
  yield {
    type: 'result',
    subtype: 'success',
    is_error: false,
    session_id: SESSION_ID,
    result: ANSWER,
    stop_reason: 'end_turn',
    usage: { input_tokens: 10, output_tokens: 10 },
  }
}

/** Begins with its number, so that a lost, doubled or mixed-up message shows, and is filled up to `bytes`. */
function emittedMessage(index: number, bytes: number): object {
  return assistantMessage(`${index} `.padEnd(bytes - EMPTY_BYTES, '.'))
}

const assistantMessage = (text: string) => ({
  type: 'assistant',
  session_id: SESSION_ID,
  message: { role: 'assistant', content: [{ type: 'text', text }] },
})
const EMPTY_BYTES = JSON.stringify(assistantMessage('')).length
