import type { MessagesRequest, RequestMessage } from '../messages-request.ts'
import type { StreamEvent } from '../stream-events.ts'

const BASH = { name: 'Bash', description: 'Runs a command', input_schema: { type: 'object' } }

/** A request as the CLI would send it: with a tool, unless told otherwise. */
export function messagesBody(prompt: string | RequestMessage[], more: object = {}): MessagesRequest {
  const messages = typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : prompt
  return { model: 'claude-test', max_tokens: 1024, tools: [BASH], messages, ...more }
}

/** What the CLI sends after a reply that called a tool. */
export function afterTool(prompt: string, result: string, isError = false): RequestMessage[] {
  return [
    { role: 'user', content: prompt },
    { role: 'assistant', content: [{ type: 'tool_use', id: 'toolu_1', name: 'Bash', input: {} }] },
    {
      role: 'user',
      content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: result, is_error: isError }],
    },
  ]
}

export function post(url: string, body: unknown, init: RequestInit = {}): Promise<Response> {
  const data = typeof body === 'string' ? body : JSON.stringify(body)
  return fetch(`${url}/v1/messages?beta=true`, { method: 'POST', body: data, ...init })
}

/** The text of a whole reply, or `error <status>: <message>`. */
export async function ask(
  url: string,
  prompt: string | RequestMessage[],
  more: object = {},
): Promise<string> {
  const response = await post(url, messagesBody(prompt, more))
  const reply = (await response.json()) as { content: { text?: string }[]; error?: { message: string } }
  if (reply.error !== undefined) return `error ${response.status}: ${reply.error.message}`
  return reply.content.map((block) => block.text ?? '').join('')
}

/** The events of a complete stream. */
export async function readEvents(response: Response): Promise<StreamEvent[]> {
  return parseEvents(await response.text())
}

export function parseEvents(text: string): StreamEvent[] {
  const data = text.split('\n').filter((line) => line.startsWith('data: '))
  return data.map((line) => JSON.parse(line.slice('data: '.length)) as StreamEvent)
}

/** What arrived until the connection ended, however it ended. */
export async function readUntilEnd(response: Response): Promise<{ text: string; isComplete: boolean }> {
  const decoder = new TextDecoder()
  let text = ''
  try {
    for await (const chunk of response.body ?? []) text += decoder.decode(chunk, { stream: true })
    return { text, isComplete: true }
  } catch {
    return { text, isComplete: false }
  }
}
