import type { IncomingHttpHeaders } from 'node:http'
import type { MessagesRequest, RequestBlock } from './messages-request.ts'
import { isTyped, withoutReminders } from './typed-text.ts'

export type ToolResult = { id: string; isError: boolean; text: string }

/** What a script decides on. All of it comes from the one request, so it holds across resumes and restarts. */
export type RequestContext = {
  body: MessagesRequest
  headers: IncomingHttpHeaders
  model: string
  /** Header x-claude-code-session-id; empty where the client sends none. */
  sessionId: string
  /** The last thing the user typed. */
  prompt: string
  /** Everything the user typed in this conversation, oldest first. */
  prompts: string[]
  /** Index of `prompt` in the conversation, from 0. */
  turn: number
  /** Model replies already given since `prompt`, from 0. */
  step: number
  /** Results of the tools called since `prompt`. */
  toolResults: ToolResult[]
  /** Text of the last of `toolResults`; empty where there is none. */
  toolResult: string
  tools: string[]
  /** True for side calls that carry no tools: titles, summaries, probes. */
  aux: boolean
  system: string
}

export function describeRequest(body: MessagesRequest, headers: IncomingHttpHeaders): RequestContext {
  const items = flatten(body)
  const prompts = items.filter(isPrompt)
  const last = prompts.at(-1)
  const since = items.slice(last === undefined ? 0 : items.indexOf(last) + 1)
  const toolResults = since.filter(isToolResult).map((item) => toToolResult(item.block))
  const tools = (body.tools ?? []).map((tool) => tool.name)
  return {
    body,
    headers,
    model: body.model,
    sessionId: String(headers['x-claude-code-session-id'] ?? ''),
    prompt: last === undefined ? '' : typedText(last),
    prompts: prompts.map(typedText),
    turn: Math.max(0, prompts.length - 1),
    step: countReplies(since),
    toolResults,
    toolResult: toolResults.at(-1)?.text ?? '',
    tools,
    aux: tools.length === 0,
    system: textOf(body.system ?? ''),
  }
}

type Item = { role: string; block: RequestBlock }

// Block by block, not message by message: after a failed turn the CLI sends the old and the new prompt as two
// blocks of one message, and they are still two turns.
function flatten(body: MessagesRequest): Item[] {
  return body.messages.flatMap(({ role, content }) => toBlocks(content).map((block) => ({ role, block })))
}

function toBlocks(content: string | RequestBlock[]): RequestBlock[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : content
}

const isPrompt = ({ role, block }: Item) =>
  role === 'user' && block.type === 'text' && isTyped(block.text ?? '')

const typedText = ({ block }: Item) => withoutReminders(block.text ?? '')

const isToolResult = ({ role, block }: Item) => role === 'user' && block.type === 'tool_result'

function toToolResult(block: RequestBlock): ToolResult {
  const text = withoutReminders(textOf(block.content ?? ''))
  return { id: block.tool_use_id ?? '', isError: block.is_error === true, text }
}

function textOf(content: string | RequestBlock[]): string {
  return toBlocks(content)
    .map((block) => block.text ?? '')
    .filter((text) => text !== '')
    .join('\n')
}

// Neighbouring assistant messages are one reply that the client split up; system messages do not separate them.
function countReplies(items: Item[]): number {
  const roles = items.filter((item) => item.role !== 'system').map((item) => item.role)
  return roles.filter((role, index) => role === 'assistant' && roles[index - 1] !== 'assistant').length
}
