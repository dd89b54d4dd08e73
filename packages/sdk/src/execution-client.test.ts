import { isAshError } from '@ash-ai/shared'
import { afterEach, describe, expect, test } from 'vitest'
import { AshClient } from './client.ts'
import { EXECUTION, resultFrame, statusFrame } from './testing/executions.ts'
import { openSSE, type SeenRequest, sendJson, startServer, type TestServer } from './testing/http-server.ts'

let server: TestServer | undefined
afterEach(() => server?.close())

async function serve(answer: Parameters<typeof startServer>[0]): Promise<AshClient> {
  server = await startServer(answer)
  return new AshClient({ baseUrl: server.url })
}
const replying = (body: unknown) => serve((_, response) => sendJson(response, 200, body))
const calls = () => server?.requests.map(({ method, url }) => `${method} ${url}`)
const bodyOf = (request: SeenRequest | undefined) => JSON.parse(request?.body ?? '')

describe('execute', () => {
  test('posts the code with a key of its own and returns the execution', async () => {
    const client = await replying({ execution: EXECUTION })
    expect(await client.execute({ code: '42', language: 'python' })).toEqual(EXECUTION)
    expect(await client.sessions.execute('s1', { handler: 'x', event: {} })).toEqual(EXECUTION)
    await client.execute({ code: 'x' }, { idempotencyKey: 'mine' })
    expect(calls()).toEqual(['POST /api/execute', 'POST /api/sessions/s1/execute', 'POST /api/execute'])
    expect(bodyOf(server?.requests[0])).toEqual({ code: '42', language: 'python' })
    const keys = server?.requests.map(({ headers }) => headers['idempotency-key'])
    expect(new Set(keys).size).toBe(3)
    expect(keys?.[2]).toBe('mine')
  })

  test('sends code again whose reply was lost, with the same key', async () => {
    const client = await serve((_, response, index) => {
      if (index === 0) response.destroy()
      else sendJson(response, 200, { execution: EXECUTION })
    })
    expect(await client.execute({ code: 'x' })).toEqual(EXECUTION)
    const keys = server?.requests.map(({ headers }) => headers['idempotency-key'])
    expect(keys).toEqual([keys?.[0], keys?.[0]])
  })

  test('of what may run for long reads a stream, which heartbeats keep open', async () => {
    const client = await serve((_, response) =>
      openSSE(response).end(statusFrame('1', 'completed') + resultFrame()),
    )
    expect(await client.execute({ code: 'x', timeout: 3_600_000 })).toEqual(EXECUTION)
    expect(server?.requests[0]?.headers.accept).toBe('text/event-stream')
  })

  test('with async returns at once, and wait gives the outcome', async () => {
    const pending = { ...EXECUTION, status: 'pending' }
    const client = await serve(({ method }, response, index) => {
      if (method === 'POST') return sendJson(response, 202, { execution: pending })
      sendJson(response, 200, { execution: index < 3 ? { ...EXECUTION, status: 'running' } : EXECUTION })
    })
    const { sessionId, id, status } = await client.execute({ code: 'x', async: true, timeout: 3_600_000 })
    expect(status).toBe('pending')
    expect(await client.executions.wait(sessionId, id)).toEqual(EXECUTION)
    expect(calls()?.slice(1)).toEqual(Array(3).fill('GET /api/sessions/s1/executions/e1'))
  })
})

describe('executions', () => {
  test('wait ends when its time does', async () => {
    const client = await replying({ execution: { ...EXECUTION, status: 'running' } })
    const waiting = client.executions.wait('s1', 'e1', { waitMs: 30 })
    await expect(waiting).rejects.toMatchObject({ reason: 'timeout' })
  })

  test('list, get, result and cancel are their paths', async () => {
    const client = await serve(({ url }, response) => {
      if (url.endsWith('/result')) return sendJson(response, 200, 0)
      sendJson(response, 200, { execution: EXECUTION, executions: [EXECUTION], artifacts: [] })
    })
    await client.executions.list('s1', { status: 'failed', limit: 5 })
    await client.executions.get('s1', 'e1')
    expect(await client.executions.result('s1', 'e1')).toBe(0)
    await client.executions.cancel('s1', 'e1')
    await client.executions.artifacts('s1', { cursor: 'c' })
    expect(calls()).toEqual([
      'GET /api/sessions/s1/executions?status=failed&limit=5',
      'GET /api/sessions/s1/executions/e1',
      'GET /api/sessions/s1/executions/e1/result',
      'DELETE /api/sessions/s1/executions/e1',
      'GET /api/sessions/s1/artifacts?cursor=c',
    ])
  })

  test('download is the bytes, of whatever type', async () => {
    const bytes = Buffer.of(0xff, 0x00, 0x80)
    const client = await serve((_, response) =>
      response.writeHead(200, { 'content-type': 'image/png' }).end(bytes),
    )
    const parts: Uint8Array[] = []
    for await (const part of await client.executions.download('s1', 'e1', 'out/a b.png')) parts.push(part)
    expect(Buffer.concat(parts)).toEqual(bytes)
    expect(calls()).toEqual(['GET /api/sessions/s1/executions/e1/artifacts/out/a%20b.png'])
    const outside = client.executions.download('s1', 'e1', '../secret')
    await expect(outside).rejects.toSatisfy((error) => isAshError(error, 'path_invalid'))
  })
})

test('kernels are named by language and name', async () => {
  const client = await replying({ kernels: [], kernel: { name: 'default' } })
  await client.kernels.list('s1')
  await client.kernels.create('s1', { name: 'a' })
  await client.kernels.restart('s1')
  await client.kernels.interrupt('s1', { language: 'javascript', name: 'a' })
  await client.kernels.delete('s1', { name: 'a' })
  expect(calls()).toEqual([
    'GET /api/sessions/s1/kernels',
    'POST /api/sessions/s1/kernels',
    'POST /api/sessions/s1/kernels/python/default/restart',
    'POST /api/sessions/s1/kernels/javascript/a/interrupt',
    'DELETE /api/sessions/s1/kernels/python/a',
  ])
})

test('templates are created, replaced under their name, and deleted', async () => {
  const client = await replying({ templates: [], template: { name: 'science' } })
  await client.templates.list({ limit: 2 })
  await client.templates.get('python')
  await client.templates.create({ name: 'science', languages: ['python'] })
  await client.templates.put({ name: 'science', timeout: 1000 })
  await client.templates.delete('science')
  expect(calls()).toEqual([
    'GET /api/templates?limit=2',
    'GET /api/templates/python',
    'POST /api/templates',
    'PUT /api/templates/science',
    'DELETE /api/templates/science',
  ])
  expect(bodyOf(server?.requests[3])).toEqual({ timeout: 1000 })
})
