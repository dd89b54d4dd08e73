import type { ServerResponse } from 'node:http'
import { isAshError } from '@ash-ai/shared'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { AshClient, type AshClientOptions } from './client.ts'
import type { ExecutionStreamEvent } from './execution-stream.ts'
import { EXECUTION, outputFrame, resultFrame, statusFrame } from './testing/executions.ts'
import { openSSE, sendJson, startServer, type TestServer } from './testing/http-server.ts'

let server: TestServer | undefined
afterEach(() => server?.close())

async function serve(
  answer: Parameters<typeof startServer>[0],
  options: AshClientOptions = {},
): Promise<AshClient> {
  server = await startServer(answer)
  return new AshClient({ baseUrl: server.url, ...options })
}

const calls = () => server?.requests.map(({ method, url }) => `${method} ${url}`)
const cut = (response: ServerResponse) => setTimeout(() => response.destroy(), 20)

async function read(events: AsyncIterable<ExecutionStreamEvent>): Promise<string[]> {
  const seen: string[] = []
  for await (const event of events) seen.push(describeEvent(event))
  return seen
}

function describeEvent(event: ExecutionStreamEvent): string {
  if (event.type === 'output') return event.text
  return event.type === 'execution' ? event.status : `= ${event.execution.result}`
}

describe('a run', () => {
  test('is its states and output, and at the end all of it', async () => {
    const client = await serve((_, response) => {
      response.setHeader('x-ash-session-id', 's1').setHeader('x-ash-execution-id', 'e1')
      openSSE(response).write(`: hello\n\n${statusFrame('1', 'pending')}${statusFrame('2', 'running')}`)
      response.end(outputFrame('3', 'hello\n') + statusFrame('4', 'completed') + resultFrame())
    })
    const run = client.executeStream({ code: '42', template: 'python' })
    expect(await read(run)).toEqual(['pending', 'running', 'hello\n', 'completed', '= 42'])
    expect([run.sessionId, run.id]).toEqual(['s1', 'e1'])
    expect(await run.result()).toEqual(EXECUTION)
    expect(server?.requests[0]).toMatchObject({
      method: 'POST',
      url: '/api/execute',
      headers: { accept: 'text/event-stream' },
    })
    expect(JSON.parse(server?.requests[0]?.body ?? '')).toEqual({ code: '42', template: 'python' })
  })

  test('that failed has an outcome as any other', async () => {
    const failed = { ...EXECUTION, status: 'failed', error: { name: 'ValueError', message: 'no' } }
    const client = await serve((_, response) =>
      openSSE(response).end(statusFrame('1', 'failed') + resultFrame(failed)),
    )
    expect(await client.sessions.executeStream('s1', { code: 'x' }).result()).toEqual(failed)
    expect(calls()).toEqual(['POST /api/sessions/s1/execute'])
  })

  test('that was refused throws what the server said', async () => {
    const reply = { error: 'full', code: 'queue_full', statusCode: 429, requestId: 'r' }
    const client = await serve((_, response) => sendJson(response, 429, reply))
    const run = client.executeStream({ code: 'x' })
    await expect(run.result()).rejects.toMatchObject({ code: 'queue_full', requestId: 'r' })
  })

  test('left by break closes the connection', async () => {
    let isClosed = false
    const client = await serve((_, response) => {
      response.on('close', () => {
        isClosed = true
      })
      openSSE(response).write(statusFrame('1', 'running'))
    })
    const run = client.executeStream({ code: 'x' })
    for await (const _ of run) break
    await vi.waitFor(() => expect(isClosed).toBe(true))
    await expect(run.result()).rejects.toThrow('left before it ended')
  })
})

describe('a broken stream', () => {
  test('is continued from the log of the session, without what others run there', async () => {
    const client = await serve(({ method, url }, response) => {
      if (method === 'POST') {
        openSSE(response).write(statusFrame('4', 'running') + outputFrame('5', 'a'))
        return cut(response)
      }
      if (url.endsWith('/executions/e1')) return sendJson(response, 200, { execution: EXECUTION })
      openSSE(response).write(outputFrame('5', 'a') + outputFrame('6', 'other', 'e2') + outputFrame('7', 'b'))
      response.write(statusFrame('8', 'completed', 'e2') + statusFrame('9', 'completed'))
    })
    const run = client.sessions.executeStream('s1', { code: 'x' })
    expect(await read(run)).toEqual(['running', 'a', 'b', 'completed', '= 42'])
    expect(calls()).toEqual([
      'POST /api/sessions/s1/execute',
      'GET /api/sessions/s1/stream',
      'GET /api/sessions/s1/executions/e1',
    ])
    expect(server?.requests[1]?.headers['last-event-id']).toBe('5')
  })

  test('between the last entry and the result only asks for the execution', async () => {
    const client = await serve(({ method }, response) => {
      if (method === 'GET') return sendJson(response, 200, { execution: EXECUTION })
      openSSE(response).write(statusFrame('1', 'completed'))
      cut(response)
    })
    expect(await read(client.sessions.executeStream('s1', { code: 'x' }))).toEqual(['completed', '= 42'])
    expect(calls()).toEqual(['POST /api/sessions/s1/execute', 'GET /api/sessions/s1/executions/e1'])
  })

  test('before anything came brings the code again, with the same key', async () => {
    const client = await serve((_, response, index) => {
      if (index > 0) return openSSE(response).end(statusFrame('1', 'completed') + resultFrame())
      openSSE(response).write(': wait\n\n')
      cut(response)
    })
    expect(await read(client.sessions.executeStream('s1', { code: 'x' }))).toEqual(['completed', '= 42'])
    const [first, second] = server?.requests ?? []
    expect(second).toMatchObject({ method: 'POST', url: first?.url, body: first?.body })
    expect(first?.headers['idempotency-key']).toMatch(/^[0-9a-f-]{36}$/)
    expect(second?.headers['idempotency-key']).toBe(first?.headers['idempotency-key'])
  })

  test('of a session that is not known asks for the same run again, each entry once', async () => {
    const client = await serve((_, response, index) => {
      openSSE(response).write(statusFrame('1', 'running') + outputFrame('2', 'a'))
      if (index === 0) return cut(response)
      response.end(outputFrame('3', 'b') + statusFrame('4', 'completed') + resultFrame())
    })
    const run = client.executeStream({ code: 'x' })
    expect(await read(run)).toEqual(['running', 'a', 'b', 'completed', '= 42'])
    expect(calls()).toEqual(['POST /api/execute', 'POST /api/execute'])
  })

  test('does not hide that the session is gone', async () => {
    const reply = { error: 'x', code: 'session_not_found', statusCode: 404, requestId: 'r' }
    const client = await serve(({ method }, response) => {
      if (method === 'GET') return sendJson(response, 404, reply)
      openSSE(response).end(statusFrame('1', 'running'))
    })
    const run = client.sessions.executeStream('s1', { code: 'x' })
    await expect(run.result()).rejects.toSatisfy((error) => isAshError(error, 'session_not_found'))
  })
})
