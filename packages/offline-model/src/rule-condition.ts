import type { RequestContext } from './request-context.ts'
import type { RuleCondition } from './script.ts'

/** Whether every field named in the condition holds for the request. */
export function conditionHolds(condition: RuleCondition, context: RequestContext): boolean {
  return (Object.keys(condition) as (keyof RuleCondition)[]).every((field) =>
    fieldHolds(condition[field], context[field]),
  )
}

function fieldHolds(wanted: RuleCondition[keyof RuleCondition], actual: string | number | boolean): boolean {
  if (wanted === undefined) return true
  if (typeof wanted === 'number' || typeof wanted === 'boolean') return wanted === actual
  const expression = wanted instanceof RegExp ? wanted : toExpression(wanted)
  // search() ignores lastIndex, so that a rule with a global expression applies every time.
  return expression === undefined
    ? String(actual).includes(String(wanted))
    : String(actual).search(expression) >= 0
}

// JSON has no regular expressions, hence the form "/expression/flags".
function toExpression(text: string): RegExp | undefined {
  const [, source, flags] = /^\/(.+)\/([a-z]*)$/s.exec(text) ?? []
  return source === undefined ? undefined : new RegExp(source, flags)
}
