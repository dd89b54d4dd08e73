/** The parts of a Messages API request that this server reads; the rest of the body is kept but not understood. */
export type MessagesRequest = {
  model: string
  messages: RequestMessage[]
  system?: string | RequestBlock[]
  tools?: { name: string }[]
  stream?: boolean
  [field: string]: unknown
}

export type RequestMessage = { role: string; content: string | RequestBlock[] }

/** A content block of any type; text and tool_result are the ones looked into. */
export type RequestBlock = {
  type: string
  text?: string
  tool_use_id?: string
  is_error?: boolean
  content?: string | RequestBlock[]
  [field: string]: unknown
}

/** Checks a decoded body. Throws InvalidRequest in the words a client should see. */
export function parseMessagesRequest(body: unknown): MessagesRequest {
  if (!isRecord(body)) throw new InvalidRequest('body: a JSON object is required')
  const { model, messages, system, tools, stream } = body
  demand(typeof model === 'string' && model !== '', 'model: Field required')
  demand(Array.isArray(messages) && messages.length > 0, 'messages: at least one message is required')
  demand((messages as unknown[]).every(isMessage), 'messages: each needs a role and content')
  demand(system === undefined || isContent(system), 'system: a string or a list of blocks is required')
  demand(tools === undefined || isToolList(tools), 'tools: a list of named tools is required')
  demand(stream === undefined || typeof stream === 'boolean', 'stream: a boolean is required')
  return body as MessagesRequest
}

/** The client's own mistake: answered with status 400. */
export class InvalidRequest extends Error {
  override name = 'InvalidRequest'
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function demand(condition: boolean, message: string): void {
  if (!condition) throw new InvalidRequest(message)
}

function isMessage(value: unknown): boolean {
  return isRecord(value) && typeof value.role === 'string' && isContent(value.content)
}

function isContent(value: unknown): boolean {
  return typeof value === 'string' || (Array.isArray(value) && value.every(isBlock))
}

function isBlock(value: unknown): boolean {
  if (!isRecord(value) || typeof value.type !== 'string') return false
  if (value.type === 'text') return typeof value.text === 'string'
  if (value.type === 'tool_result') return value.content === undefined || isContent(value.content)
  return true
}

function isToolList(value: unknown): boolean {
  return Array.isArray(value) && value.every((tool) => isRecord(tool) && typeof tool.name === 'string')
}
