const STEP = '  '
const MAX_DEPTH = 64
const TOKEN = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g

/**
 * JSON text with a line for each value. As text: numbers larger than JavaScript's stay as they are. What is nested so
 * deep that the indentation would be most of it is left alone.
 */
export function indentJson(json: string): string {
  const parts: string[] = []
  let depth = 0
  let isOpen = false
  const newLine = () => parts.push(`\n${STEP.repeat(depth)}`)
  for (const [token] of json.matchAll(TOKEN)) {
    const isEnd = token === '}' || token === ']'
    if (isEnd) depth--
    if (isOpen ? !isEnd : isEnd) newLine()
    isOpen = token === '{' || token === '['
    if (isOpen && ++depth > MAX_DEPTH) return json
    parts.push(token === ':' ? ': ' : token)
    if (token === ',') newLine()
  }
  return parts.join('')
}

/** Whether it is JSON at all: it comes from inside. */
export function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** The value, with integers that JavaScript's numbers cannot hold as they are. */
export function parseExact(json: string): unknown {
  const revive = (_key: string, value: unknown, context?: { source?: string }) =>
    typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? '')
      ? BigInt(context?.source ?? '')
      : value
  return JSON.parse(json, revive as (key: string, value: unknown) => unknown)
}
