import type { ReplyMessage } from './reply-message.ts'
import type { ContentBlock, Step } from './script.ts'

export type StreamEvent = { type: string; [field: string]: unknown }

const CHUNK_SIZE = 16

/** The events of a streamed message, in the order in which the real API sends them. */
export function* streamEvents(message: ReplyMessage, step: Step): Generator<StreamEvent> {
  const { usage } = message
  yield {
    type: 'message_start',
    message: { ...message, content: [], stop_reason: null, usage: { ...usage, output_tokens: 1 } },
  }
  yield { type: 'ping' }
  for (const [index, block] of message.content.entries()) {
    const { start, deltas } = openBlock(block, step)
    yield { type: 'content_block_start', index, content_block: start }
    for (const delta of deltas) yield { type: 'content_block_delta', index, delta }
    yield { type: 'content_block_stop', index }
  }
  yield { type: 'message_delta', delta: { stop_reason: message.stop_reason, stop_sequence: null }, usage }
  yield { type: 'message_stop' }
}

export function encodeEvent(event: StreamEvent): string {
  return `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`
}

type OpenBlock = { start: ContentBlock; deltas: ContentBlock[] }

function openBlock(block: ContentBlock, step: Step): OpenBlock {
  switch (block.type) {
    case 'text':
      return openText(block, step)
    case 'thinking':
      return openThinking(block, step)
    case 'tool_use':
    case 'server_tool_use':
      return openToolUse(block, step)
    default:
      return { start: block, deltas: [] }
  }
}

function openText(block: ContentBlock, step: Step): OpenBlock {
  const deltas = chunks(block.text, step).map((text) => ({ type: 'text_delta', text }))
  return { start: { ...block, text: '' }, deltas }
}

function openThinking(block: ContentBlock, step: Step): OpenBlock {
  const { thinking, signature = '' } = block
  const deltas = chunks(thinking, step).map((part) => ({ type: 'thinking_delta', thinking: part }))
  const start = { ...block, thinking: '', signature: '' }
  return { start, deltas: [...deltas, { type: 'signature_delta', signature }] }
}

function openToolUse(block: ContentBlock, step: Step): OpenBlock {
  const json = step.rawInput ?? JSON.stringify(block.input ?? {})
  // The API opens a tool's input with an empty piece.
  const deltas = ['', ...chunks(json, step)].map((piece) => ({
    type: 'input_json_delta',
    partial_json: piece,
  }))
  return { start: { ...block, input: {} }, deltas }
}

/** By code point, so that no delta holds half a character. */
function chunks(text: unknown, { chunkSize = CHUNK_SIZE }: Step): string[] {
  const characters = Array.from(String(text ?? ''))
  const size = Math.max(1, chunkSize)
  const starts = Array.from({ length: Math.ceil(characters.length / size) }, (_, index) => index * size)
  return starts.map((start) => characters.slice(start, start + size).join(''))
}
