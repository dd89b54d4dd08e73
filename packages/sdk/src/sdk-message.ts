import type { SdkMessage } from './events.ts'

/** The text blocks of an `assistant` message; empty for others and for those of a subagent. */
export function textOf(message: SdkMessage): string {
  if (message.type !== 'assistant' || isFromSubagent(message)) return ''
  return contentBlocks(message)
    .map((block) => (block.type === 'text' && typeof block.text === 'string' ? block.text : ''))
    .join('')
}

/** A piece of text from a `stream_event` message, which exists only with `includePartialMessages`. */
export function textDeltaOf(message: SdkMessage): string {
  if (message.type !== 'stream_event' || isFromSubagent(message)) return ''
  const event = toObject(message.event)
  const delta = toObject(event?.delta)
  const isText = event?.type === 'content_block_delta' && delta?.type === 'text_delta'
  return isText && typeof delta.text === 'string' ? delta.text : ''
}

/** The tools an `assistant` message calls. */
export function toolUsesOf(message: SdkMessage): { name: string; input: unknown }[] {
  if (message.type !== 'assistant') return []
  return contentBlocks(message).flatMap(({ type, name, input }) =>
    type === 'tool_use' && typeof name === 'string' ? [{ name, input }] : [],
  )
}

function contentBlocks(message: SdkMessage): Record<string, unknown>[] {
  const content = toObject(message.message)?.content
  return Array.isArray(content) ? content.map(toObject).filter((block) => block !== undefined) : []
}

const isFromSubagent = (message: SdkMessage) => typeof message.parent_tool_use_id === 'string'

function toObject(value: unknown): Record<string, unknown> | undefined {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined
}
