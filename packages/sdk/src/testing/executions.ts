import { frame } from './http-server.ts'

export const EXECUTION = {
  id: 'e1',
  sessionId: 's1',
  status: 'completed',
  language: 'python',
  kind: 'script',
  stdout: 'hello\n',
  stderr: '',
  result: 42,
  hasResult: true,
  results: [],
  truncated: false,
  artifacts: [],
  artifactsComplete: true,
  attempt: 1,
  timeout: 300_000,
  createdAt: '2026-01-01T00:00:00.000Z',
}

export const statusFrame = (id: string, status: string, executionId = 'e1') =>
  frame(id, 'execution', { executionId, status, attempt: 1, language: 'python' })
export const outputFrame = (id: string, text: string, executionId = 'e1') =>
  frame(id, 'output', { executionId, stream: 'stdout', text })
/** The last frame of a reply, which is no entry of the log. */
export const resultFrame = (execution: object = EXECUTION) =>
  `event: result\ndata: ${JSON.stringify(execution)}\n\n`
