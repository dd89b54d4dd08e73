import type { RequestContext } from './request-context.ts'

/** Fills {{name}} in every string within a value; what is filled in is not searched again. */
export function fillTemplate<T>(value: T, context: RequestContext): T {
  return fillAny(value, context) as T
}

function fillAny(value: unknown, context: RequestContext): unknown {
  if (typeof value === 'string') return fillText(value, context)
  if (Array.isArray(value)) return value.map((entry) => fillAny(entry, context))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, fillAny(entry, context)]))
}

function fillText(text: string, context: RequestContext): string {
  return text.replace(/\{\{(\w+)\}\}/g, (whole, name: string) => VALUES.get(name)?.(context) ?? whole)
}

const VALUES = new Map<string, (context: RequestContext) => string>([
  ['prompt', (context) => context.prompt],
  ['prompts', (context) => context.prompts.join(' | ')],
  ['turn', (context) => String(context.turn)],
  ['step', (context) => String(context.step)],
  ['model', (context) => context.model],
  ['sessionId', (context) => context.sessionId],
  ['toolResult', (context) => context.toolResult],
  ['system', (context) => context.system],
])
