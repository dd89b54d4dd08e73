/** A question of the agent, as far as it has the form that the SDK's tool gives it. */
export interface Question {
  question: string
  options: { label: string; description: string }[]
  multiSelect: boolean
}

/** The questions in a request's input; what does not have their form is left out. */
export function questionsOf(input: Record<string, unknown>): Question[] {
  return listOf(input.questions).flatMap(({ question, options, multiSelect }) =>
    typeof question === 'string'
      ? [{ question, options: optionsOf(options), multiSelect: multiSelect === true }]
      : [],
  )
}

/** What the user typed as the answer: the labels of the numbers, or the words. */
export function toAnswer({ options, multiSelect }: Question, text: string): string {
  const numbers = multiSelect ? text.split(',') : [text]
  const chosen = numbers.map((number) =>
    /^\s*\d+\s*$/.test(number) ? options[Number(number) - 1] : undefined,
  )
  const labels = chosen.flatMap((option) => option?.label ?? [])
  return labels.length === numbers.length ? labels.join(', ') : text
}

const optionsOf = (options: unknown) =>
  listOf(options).flatMap(({ label, description }) =>
    typeof label === 'string'
      ? [{ label, description: typeof description === 'string' ? description : '' }]
      : [],
  )

function listOf(value: unknown): Record<string, unknown>[] {
  const items: unknown[] = Array.isArray(value) ? value : []
  return items.filter((item): item is Record<string, unknown> => typeof item === 'object' && item !== null)
}
