import { spawn } from 'node:child_process'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'

export const BIN = fileURLToPath(new URL('../../bin/ash.mjs', import.meta.url))

export interface CliResult {
  code: number | null
  stdout: string
  stderr: string
}

export interface CliOptions {
  env?: Record<string, string | undefined>
  input?: string
  bin?: string
  /** Called with what stdout has so far, to send a signal at the right moment. */
  onOutput?: (stdout: string, kill: (signal: NodeJS.Signals) => void) => void
}

/** Runs the real command from its sources, in an environment with nothing but what is given. */
export function runCli(args: string[], options: CliOptions = {}): Promise<CliResult> {
  const command = ['--conditions=development', options.bin ?? BIN, ...args]
  return runProcess(process.execPath, command, options)
}

export function runProcess(file: string, args: string[], options: CliOptions): Promise<CliResult> {
  const child = spawn(file, args, {
    env: { PATH: process.env.PATH, ASH_DATA_DIR: '/nonexistent/ash', ...options.env },
  })
  const result = { code: null as number | null, stdout: '', stderr: '' }
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    result.stdout += text
    options.onOutput?.(result.stdout, (signal) => child.kill(signal))
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    result.stderr += text
  })
  // A command that has already ended does not read its input.
  child.stdin.on('error', () => {}).end(options.input ?? '')
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code) => resolve({ ...result, code }))
  })
}

export interface ApiRequest {
  method: string
  url: string
  key: string | undefined
  json: unknown
}

export interface Api {
  url: string
  requests: ApiRequest[]
  close(): Promise<void>
}

/** A real HTTP server that answers by `METHOD /path`; anything else is 404 as Ash says it. */
export async function startApi(
  routes: Record<string, (response: ServerResponse, request: ApiRequest) => void>,
): Promise<Api> {
  const requests: ApiRequest[] = []
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    const body = Buffer.concat(chunks).toString()
    const { method = '', url = '' } = request
    const json: unknown = body.startsWith('{') ? JSON.parse(body) : body
    const seen = { method, url, key: request.headers.authorization, json }
    requests.push(seen)
    const route = routes[`${method} ${url}`]
    if (route) route(response, seen)
    else sendJson(response, 404, errorBody('route_not_found', 404, `No ${method} ${url}`))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    close: () => {
      server.closeAllConnections()
      return new Promise((resolve) => server.close(() => resolve()))
    },
  }
}

export const errorBody = (code: string, statusCode: number, error: string) => ({
  error,
  code,
  statusCode,
  requestId: 'r1',
})

export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

export function sendEvents(response: ServerResponse, events: [event: string, data: unknown][]): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  for (const [index, [event, data]] of events.entries()) {
    response.write(`id: ${index + 1}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`)
  }
}

export const SESSION = {
  id: '0b7c9a52-6f0e-4a3e-9f3a-3d1c3f0d7a11',
  tenantId: 'default',
  agentName: 'helper',
  agentVersion: 1,
  provider: 'bwrap',
  isolation: 'bwrap',
  status: 'active',
  sandboxState: 'waiting',
  config: {},
  checkpoints: {},
  autoResume: true,
  env: {},
  createdAt: '2026-01-01T00:00:00.000Z',
  lastActiveAt: '2026-01-01T00:00:00.000Z',
}

export const TURN: [string, unknown] = ['turn', { turnId: 't1', content: 'hi' }]
export const DONE: [string, unknown] = [
  'done',
  { sessionId: SESSION.id, turnId: 't1', stopReason: 'end_turn' },
]
export const assistant = (...content: object[]): [string, unknown] => [
  'message',
  { type: 'assistant', parent_tool_use_id: null, message: { content } },
]
export const delta = (text: string): [string, unknown] => [
  'message',
  { type: 'stream_event', event: { type: 'content_block_delta', delta: { type: 'text_delta', text } } },
]
