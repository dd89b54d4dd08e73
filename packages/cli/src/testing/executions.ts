import type { ServerResponse } from 'node:http'
import { SESSION } from './run-cli.ts'

export const EXECUTION = {
  id: 'e0e0e0e0-6f0e-4a3e-9f3a-3d1c3f0d7a11',
  sessionId: SESSION.id,
  status: 'completed',
  language: 'python',
  kind: 'script',
  stdout: '',
  stderr: '',
  result: null,
  hasResult: false,
  results: [] as unknown[],
  truncated: false,
  artifacts: [] as unknown[],
  artifactsComplete: true,
  attempt: 1,
  timeout: 300_000,
  createdAt: '2026-01-01T00:00:00.000Z',
}
type Execution = typeof EXECUTION & Record<string, unknown>

export type Written = [stream: 'stdout' | 'stderr', text: string]

/** The reply to code that runs: it wrote this, and the rest is in `outcome`. */
export function sendRun(
  response: ServerResponse,
  written: Written[],
  outcome: Partial<Execution> = {},
): void {
  const all = (name: string) => written.flatMap(([stream, text]) => (stream === name ? [text] : [])).join('')
  beginRun(response, written)
  const execution = { ...EXECUTION, stdout: all('stdout'), stderr: all('stderr'), ...outcome }
  endRun(response, execution)
}

export function beginRun(response: ServerResponse, written: Written[]): void {
  response.setHeader('x-ash-session-id', SESSION.id).setHeader('x-ash-execution-id', EXECUTION.id)
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.write(eventFrame(1, 'execution', { status: 'running' }))
  for (const [index, [stream, text]] of written.entries())
    response.write(eventFrame(index + 2, 'output', { stream, text }))
}

export function endRun(response: ServerResponse, outcome: Partial<Execution>): void {
  const execution = { ...EXECUTION, ...outcome }
  response.write(eventFrame(1000, 'execution', { status: execution.status }))
  response.end(`event: result\ndata: ${JSON.stringify(execution)}\n\n`)
}

const eventFrame = (id: number, event: string, data: object) =>
  `id: ${id}\nevent: ${event}\ndata: ${JSON.stringify({ executionId: EXECUTION.id, ...data })}\n\n`
