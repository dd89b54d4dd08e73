const SESSION_ID = '3f0c6a52-6f2b-4a55-9d3e-0d5a4c1b7e90'

/** The messages of a turn with one short answer, in the sizes the agent SDK sends. */
export function turnMessages(): object[] {
  const filler = Array.from({ length: 30 }, (_, index) => `tool-${index}`)
  return [
    {
      type: 'system',
      subtype: 'init',
      session_id: SESSION_ID,
      cwd: '/workspace',
      tools: filler,
      model: 'instant',
    },
    {
      type: 'assistant',
      session_id: SESSION_ID,
      message: {
        role: 'assistant',
        content: [{ type: 'text', text: 'An answer of a usual length. '.repeat(10) }],
      },
    },
    {
      type: 'result',
      subtype: 'success',
      is_error: false,
      session_id: SESSION_ID,
      result: 'An answer of a usual length. '.repeat(10),
      stop_reason: 'end_turn',
      usage: { input_tokens: 10, output_tokens: 10 },
    },
  ]
}
