import { afterEach, expect, test } from 'vitest'
import { AshClient } from './client.ts'
import { sendJson, startServer, type TestServer } from './testing/http-server.ts'

const CREDENTIAL = {
  name: 'github',
  hosts: ['api.github.com'],
  scheme: { type: 'bearer' as const },
  createdAt: '2026-01-01T00:00:00.000Z',
  updatedAt: '2026-01-01T00:00:00.000Z',
}

let server: TestServer | undefined
afterEach(() => server?.close())

test('credentials are created, listed, read and deleted', async () => {
  server = await startServer(({ method, url }, response) => {
    if (method === 'DELETE') return sendJson(response, 200, { ok: true })
    if (method === 'GET' && url.startsWith('/api/credentials?'))
      return sendJson(response, 200, { credentials: [CREDENTIAL] })
    return sendJson(response, 200, { credential: CREDENTIAL })
  })
  const { credentials } = new AshClient({ baseUrl: server.url, apiKey: 'k' })
  const { createdAt: _created, updatedAt: _updated, ...content } = CREDENTIAL
  expect(await credentials.create({ ...content, secret: 'hunter2' })).toEqual(CREDENTIAL)
  expect(await credentials.list({ limit: 5 })).toEqual({ credentials: [CREDENTIAL] })
  expect(await credentials.get('github')).toEqual(CREDENTIAL)
  await credentials.delete('github')
  expect(server.requests.map(({ method, url }) => `${method} ${url}`)).toEqual([
    'POST /api/credentials',
    'GET /api/credentials?limit=5',
    'GET /api/credentials/github',
    'DELETE /api/credentials/github',
  ])
  expect(JSON.parse(server.requests[0]?.body ?? '')).toEqual({ ...content, secret: 'hunter2' })
  await expect(credentials.get('..')).rejects.toMatchObject({ code: 'validation_failed' })
})
