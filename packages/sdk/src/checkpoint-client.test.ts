import { isAshError } from '@ash-ai/shared'
import { afterEach, expect, test } from 'vitest'
import { AshClient } from './client.ts'
import { frame, openSSE, sendJson, startServer, type TestServer } from './testing/http-server.ts'

const SESSION = { id: 's', status: 'paused' }
const CHECKPOINT = { id: 'c', sessionId: 's', seq: 4, reason: 'turn', files: 1, bytes: 2 }
const DIFF = { from: 'a', to: 'b', added: [], changed: [], removed: [], truncated: false, turns: [] }
const REPORT = { dryRun: true, local: { blobs: 1, bytes: 2 }, kept: { blobs: 3, bytes: 4 } }

let server: TestServer | undefined
afterEach(() => server?.close())

async function serve(answer: Parameters<typeof startServer>[0]): Promise<AshClient> {
  server = await startServer(answer)
  return new AshClient({ baseUrl: server.url, apiKey: 'k' })
}

const asked = () =>
  server?.requests.map(({ method, url, body }) => `${method} ${url}${body === '' ? '' : ` ${body}`}`)

test('checkpoints are listed, made, deleted and compared', async () => {
  const { checkpoints } = await serve(({ method, url }, response) => {
    if (method === 'DELETE') return sendJson(response, 200, { ok: true })
    if (url.includes('/diff?')) return sendJson(response, 200, { diff: DIFF })
    if (method === 'POST') return sendJson(response, 201, { checkpoint: CHECKPOINT })
    return sendJson(response, 200, { checkpoints: [CHECKPOINT], nextCursor: 'n' })
  })
  expect(await checkpoints.list('s', { limit: 1 })).toEqual({ checkpoints: [CHECKPOINT], nextCursor: 'n' })
  expect(await checkpoints.create('s')).toEqual(CHECKPOINT)
  expect(await checkpoints.diff('s', { from: 'a', to: 'b', limit: 9 })).toEqual(DIFF)
  await checkpoints.delete('s', 'c')
  await expect(checkpoints.delete('s', '..')).rejects.toMatchObject({ code: 'validation_failed' })
  expect(asked()).toEqual([
    'GET /api/sessions/s/checkpoints?limit=1',
    'POST /api/sessions/s/checkpoints',
    'GET /api/sessions/s/checkpoints/diff?from=a&to=b&limit=9',
    'DELETE /api/sessions/s/checkpoints/c',
  ])
})

test('a session is paused, stopped, forked and rolled back', async () => {
  const { sessions } = await serve((_, response) => sendJson(response, 200, { session: SESSION }))
  expect(await sessions.pause('s')).toEqual(SESSION)
  expect(await sessions.stop('s')).toEqual(SESSION)
  expect(await sessions.fork('s')).toEqual(SESSION)
  expect(await sessions.fork('s', { checkpointId: 'c' })).toEqual(SESSION)
  expect(await sessions.rollback('s', { checkpointId: 'c' })).toEqual(SESSION)
  expect(asked()).toEqual([
    'POST /api/sessions/s/pause',
    'POST /api/sessions/s/stop',
    'POST /api/sessions/s/fork {}',
    'POST /api/sessions/s/fork {"checkpointId":"c"}',
    'POST /api/sessions/s/rollback {"checkpointId":"c"}',
  ])
})

test('a resumed session says how it became active', async () => {
  const { sessions } = await serve((_, response) =>
    sendJson(response, 200, { session: SESSION, resumed: 'cold_remote' }),
  )
  expect(await sessions.resume('s')).toEqual({ ...SESSION, resumed: 'cold_remote' })
})

test('files are listed and read as they were at a checkpoint', async () => {
  const listing = { files: [], truncated: false, source: 'checkpoint' }
  const { files } = await serve(({ url }, response) => {
    if (url.includes('format=json')) return sendJson(response, 200, { path: 'a', content: 'text', size: 4 })
    return url.includes('/files/') ? response.end('bytes') : sendJson(response, 200, listing)
  })
  expect(await files.list('s', { checkpointId: 'c' })).toEqual(listing)
  expect(Buffer.from(await files.read('s', 'a', { checkpointId: 'c' })).toString()).toBe('bytes')
  expect(await files.readText('s', 'a', { checkpointId: 'c' })).toBe('text')
  expect(asked()).toEqual([
    'GET /api/sessions/s/files?checkpointId=c',
    'GET /api/sessions/s/files/a?checkpointId=c',
    'GET /api/sessions/s/files/a?format=json&checkpointId=c',
  ])
})

test('garbage is collected, or counted', async () => {
  const client = await serve((_, response) => sendJson(response, 200, REPORT))
  expect(await client.gc({ dryRun: true })).toEqual(REPORT)
  await client.gc()
  expect(asked()).toEqual(['POST /api/gc {"dryRun":true}', 'POST /api/gc {}'])
})

test('a checkpoint in the log is a typed event beside its place', async () => {
  const client = await serve((_, response) =>
    openSSE(response).write(frame('5', 'checkpoint', CHECKPOINT) + frame('6', 'status', { status: 'ended' })),
  )
  const events = []
  for await (const event of client.sessions.follow('s')) events.push(event)
  expect(events[0]).toEqual({ type: 'checkpoint', id: '5', checkpoint: CHECKPOINT })
})

test('a session that waits for its own resume is told by its code', async () => {
  const body = { error: 'paused', code: 'session_paused', statusCode: 409, requestId: 'r' }
  const { sessions } = await serve((_, response) => sendJson(response, 409, body))
  await expect(sessions.exec('s', { command: 'ls' })).rejects.toSatisfy((error) =>
    isAshError(error, 'session_paused'),
  )
})
