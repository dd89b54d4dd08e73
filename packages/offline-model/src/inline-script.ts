import { parseStep } from './parse-step.ts'
import type { Step } from './script.ts'

/**
 * The steps of a `!script` line, or undefined where the prompt has none. The JSON may run on over lines to the end of
 * the prompt. One that cannot be read becomes a 400, which clients do not retry and tests cannot overlook.
 */
export function inlineSteps(prompt: string): Step[] | undefined {
  const json = /^!script[ \t]+(\S[\s\S]*)/m.exec(prompt)?.[1]
  if (json === undefined) return undefined
  try {
    const steps = [decode(json)].flat().map(parseStep)
    if (steps.length === 0) throw new Error('the list of steps is empty')
    return steps
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    return [{ error: { status: 400, message: `Unreadable !script line: ${reason}` } }]
  }
}

function decode(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch (wholeError) {
    const [firstLine = ''] = json.split('\n', 1)
    if (firstLine === json) throw wholeError
    return JSON.parse(firstLine)
  }
}
