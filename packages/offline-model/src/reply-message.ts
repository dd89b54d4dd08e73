import { randomUUID } from 'node:crypto'
import { estimateTokens } from './estimate-tokens.ts'
import { fillTemplate } from './fill-template.ts'
import type { RequestContext } from './request-context.ts'
import type { ContentBlock, Step, ToolCall, Usage } from './script.ts'

/** A whole reply, as the API sends it to a request without `stream`. */
export type ReplyMessage = {
  id: string
  type: 'message'
  role: 'assistant'
  model: string
  content: ContentBlock[]
  stop_reason: string
  stop_sequence: null
  usage: Usage
}

/** The message a step stands for. */
export function buildReply(step: Step, context: RequestContext): ReplyMessage {
  const content = step.content ?? buildContent(step, context)
  const callsTool = content.some((block) => block.type === 'tool_use')
  return {
    id: newId('msg'),
    type: 'message',
    role: 'assistant',
    model: context.model,
    content,
    stop_reason: step.stopReason ?? (callsTool ? 'tool_use' : 'end_turn'),
    stop_sequence: null,
    usage: { ...estimateUsage(context, content), ...step.usage },
  }
}

/** An identifier in the API's style. Random: the CLI joins messages by id, and transcripts outlive this process. */
export function newId(prefix: string): string {
  return `${prefix}_offline_${randomUUID().replaceAll('-', '')}`
}

function buildContent(step: Step, context: RequestContext): ContentBlock[] {
  const { thinking, text } = step
  return [
    ...(thinking === undefined ? [] : [toThinking(fillTemplate(thinking, context))]),
    ...(text === undefined ? [] : [{ type: 'text', text: fillTemplate(text, context) }]),
    ...toolCalls(step).map((call) => toToolUse(call, context)),
  ]
}

function toThinking(thinking: string): ContentBlock {
  return { type: 'thinking', thinking, signature: 'offline-signature' }
}

function toolCalls({ tool, input, tools = [] }: Step): ToolCall[] {
  if (tool === undefined) return tools
  return [{ tool, ...(input === undefined ? {} : { input }) }, ...tools]
}

function toToolUse({ tool, input = {}, id }: ToolCall, context: RequestContext): ContentBlock {
  return { type: 'tool_use', id: id ?? newId('toolu'), name: tool, input: fillTemplate(input, context) }
}

function estimateUsage(context: RequestContext, content: ContentBlock[]): Usage {
  return {
    input_tokens: estimateTokens(context.body.messages),
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
    output_tokens: estimateTokens(content),
  }
}
