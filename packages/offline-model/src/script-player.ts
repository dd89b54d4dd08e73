import { inlineSteps } from './inline-script.ts'
import type { RequestContext } from './request-context.ts'
import { conditionHolds } from './rule-condition.ts'
import { expandSteps, isFailure, type Rule, type Script, type ScriptFunction, type Step } from './script.ts'
import { TurnPositions } from './turn-positions.ts'

const ECHO: Step = { text: 'echo: {{prompt}}' }

/** Chooses the step for each request, and remembers what a script needs remembered: steps and rules used up. */
export class ScriptPlayer {
  readonly #decide: ScriptFunction
  readonly #rules: { rule: Rule; left: number }[]
  readonly #steps: Step[]
  readonly #otherwise: Step
  readonly #delayMs: number
  readonly #positions = new TurnPositions()

  constructor(script: Script | undefined) {
    const { rules = [], steps = [], otherwise = ECHO, delayMs = 0 } = toObject(script)
    this.#decide = typeof script === 'function' ? script : () => undefined
    this.#rules = rules.map((rule) => ({ rule, left: rule.times ?? Number.POSITIVE_INFINITY }))
    this.#steps = expandSteps(steps)
    this.#otherwise = otherwise
    this.#delayMs = delayMs
  }

  async next(context: RequestContext): Promise<Step> {
    const step = (await this.#decide(context)) ?? this.#fromScript(context)
    return { delayMs: this.#delayMs, ...step }
  }

  #fromScript(context: RequestContext): Step {
    const inline = inlineSteps(context.prompt)
    const found = inline === undefined ? this.#fromRules(context) : { source: 'prompt', steps: inline }
    if (found !== undefined) return this.#atPosition(found.source, found.steps, context)
    return (context.aux ? undefined : this.#steps.shift()) ?? this.#otherwise
  }

  #fromRules(context: RequestContext): { source: string; steps: Step[] } | undefined {
    const index = this.#rules.findIndex((r) => r.left > 0 && conditionHolds(r.rule.when ?? {}, context))
    const found = this.#rules[index]
    if (found === undefined) return undefined
    found.left -= 1
    return { source: `rule ${index}`, steps: [found.rule.reply].flat() }
  }

  #atPosition(source: string, steps: Step[], context: RequestContext): Step {
    const all = expandSteps(steps)
    const position = this.#positions.find(source, context)
    const step = all[position] ?? all.at(-1) ?? this.#otherwise
    this.#positions.keep(source, context, { position, isFailure: isFailure(step) })
    return step
  }
}

function toObject(script: Script | undefined) {
  if (script === undefined || typeof script === 'function') return {}
  return Array.isArray(script) ? { steps: script } : script
}
