import type { RequestContext } from './request-context.ts'

/**
 * Who decides on the replies: a function, a list of steps played one per request, or rules and steps together.
 * A prompt line `!script <JSON step or list of steps>` scripts its own turn and goes before rules and steps; where
 * the script is a function it counts only when that returns undefined.
 */
export type Script = ScriptFunction | Step[] | ScriptObject

export type ScriptFunction = (context: RequestContext) => Step | undefined | Promise<Step | undefined>

export type ScriptObject = {
  /** The first rule that applies replies. */
  rules?: Rule[]
  /** Played one per request, in order, over all sessions. Requests without tools use none up. */
  steps?: Step[]
  /** Where nothing else replies; `echo: <prompt>` if absent. */
  otherwise?: Step
  /** The `delayMs` of every step that names none. */
  delayMs?: number
}

export type Rule = {
  when?: RuleCondition
  /** A list holds the replies of one turn: a turn's first request gets the first, and so on; the last one repeats. */
  reply: Step | Step[]
  /** How many requests the rule answers; no limit if absent. */
  times?: number
}

/** All named fields must hold. Text: a part of the field, or the form "/expression/flags". */
export type RuleCondition = {
  prompt?: string | RegExp
  toolResult?: string | RegExp
  model?: string | RegExp
  system?: string | RegExp
  sessionId?: string
  turn?: number
  step?: number
  aux?: boolean
}

/**
 * One reply. `text`, `thinking` and tool inputs may use {{prompt}} {{prompts}} {{turn}} {{step}} {{model}}
 * {{sessionId}} {{toolResult}} {{system}}.
 */
export type Step = {
  text?: string
  thinking?: string
  /** One tool call … */
  tool?: string
  input?: Record<string, unknown>
  /** … or several. */
  tools?: ToolCall[]
  /** Raw content blocks, sent as they are, instead of all the above. */
  content?: ContentBlock[]
  /** Tool arguments sent verbatim when streaming, for instance broken JSON. */
  rawInput?: string
  /** Derived from the content if absent. */
  stopReason?: string
  /** Over the estimate made from the sizes. */
  usage?: Partial<Usage>

  /** Pause before the response headers. */
  delayMs?: number
  /** Pause before the first content event. */
  firstTokenMs?: number
  /** Pause between content deltas. */
  chunkDelayMs?: number
  /** Characters per content delta. */
  chunkSize?: number

  /** An HTTP error: its status, or all of it. */
  error?: number | StepError
  /** Drop the connection instead of replying, or in the middle of the reply. */
  disconnect?: 'before' | 'mid'
  /** Go silent before the headers, or in the middle of the reply, until the client leaves. */
  hang?: 'headers' | 'mid'
  /** An error event in the stream; an HTTP error where the request asks for no stream. */
  streamError?: true | { type?: string; message?: string }
  /** Status 200 and a web page, a stream with an event cut short, or a JSON message cut short. */
  malformed?: 'html' | 'event' | 'json'
  /** After how many content deltas a fault in the middle of a stream strikes; 1 if absent. */
  afterDeltas?: number

  /** Play the step this many times. */
  repeat?: number
}

export type StepError = { status?: number; type?: string; message?: string; headers?: Record<string, string> }

export type ToolCall = { tool: string; input?: Record<string, unknown>; id?: string }

export type ContentBlock = { type: string; [field: string]: unknown }

export type Usage = {
  input_tokens: number
  cache_creation_input_tokens: number
  cache_read_input_tokens: number
  output_tokens: number
}

/** Whether the client gets no whole message out of the step, so that the conversation does not tell it was played. */
export function isFailure(step: Step): boolean {
  return [step.error, step.disconnect, step.hang, step.streamError, step.malformed].some(
    (f) => f !== undefined,
  )
}

const MAX_REPEAT = 1000

/** The steps with every `repeat` played out. */
export function expandSteps(steps: Step[]): Step[] {
  return steps.flatMap((step) => Array<Step>(Math.min(step.repeat ?? 1, MAX_REPEAT)).fill(step))
}

/** A scripted stream error with its default message. */
export function streamErrorOf(error: NonNullable<Step['streamError']>): { type?: string; message: string } {
  return { message: 'Scripted stream error', ...(error === true ? {} : error) }
}
