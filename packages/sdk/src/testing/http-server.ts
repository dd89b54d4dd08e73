import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { formatSSE } from '@ash-ai/shared'

export interface SeenRequest {
  method: string
  url: string
  headers: IncomingMessage['headers']
  body: string
}

export interface TestServer {
  url: string
  port: number
  requests: SeenRequest[]
  close(): Promise<void>
}

/** A real HTTP server on loopback; `answer` gets each request, its body read, and the number of those before. */
export async function startServer(
  answer: (request: SeenRequest, response: ServerResponse, index: number) => void,
  port = 0,
): Promise<TestServer> {
  const requests: SeenRequest[] = []
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    const { method = '', url = '', headers } = request
    const seen = { method, url, headers, body: Buffer.concat(chunks).toString() }
    answer(seen, response, requests.push(seen) - 1)
  })
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
  const { port: bound } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${bound}`,
    port: bound,
    requests,
    close: () => {
      server.closeAllConnections()
      return new Promise((resolve) => server.close(() => resolve()))
    },
  }
}

export function sendJson(response: ServerResponse, status: number, body: unknown, headers = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}

export function openSSE(response: ServerResponse): ServerResponse {
  return response.writeHead(200, { 'content-type': 'text/event-stream' })
}

export function frame(id: string, event: string, data: unknown): string {
  return formatSSE({ id, event, data: JSON.stringify(data) })
}

export const turnFrame = (id: string) => frame(id, 'turn', { turnId: 't1', content: 'hi' })
export const doneFrame = (id: string) =>
  frame(id, 'done', { sessionId: 's', turnId: 't1', stopReason: 'end_turn', usage: { output_tokens: 3 } })
export const textFrame = (id: string, text: string) =>
  frame(id, 'message', { type: 'assistant', message: { content: [{ type: 'text', text }] } })
