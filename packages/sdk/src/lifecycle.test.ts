import { afterEach, expect, test } from 'vitest'
import { AshClient } from './client.ts'
import { Lifecycle } from './lifecycle.ts'
import { sendJson, startServer, type TestServer } from './testing/http-server.ts'

let server: TestServer | undefined
afterEach(async () => {
  await server?.close()
  server = undefined
})

async function serve(answer: Parameters<typeof startServer>[0]) {
  server = await startServer(answer)
  const client = new AshClient({ baseUrl: server.url, retries: 0 })
  return { lifecycle: new Lifecycle(client), requests: server.requests }
}

const SESSION = { id: 's', sandboxId: 'b', provider: 'bwrap' }

test('an environment is looked for among all templates', async () => {
  const { lifecycle, requests } = await serve(({ url }, response) => {
    if (url === '/api/templates')
      return sendJson(response, 200, { templates: [{ name: 'node' }], nextCursor: 'n' })
    if (url.startsWith('/api/templates')) return sendJson(response, 200, { templates: [{ name: 'Data' }] })
    sendJson(response, 201, { session: SESSION })
  })
  expect(await lifecycle.start({ environment: 'DATA', network: 'open' })).toEqual({
    sessionId: 's',
    sandboxId: 'b',
    provider: 'bwrap',
    status: 'running',
  })
  expect(requests.map(({ url }) => url)).toEqual([
    '/api/templates',
    '/api/templates?cursor=n',
    '/api/sessions',
  ])
  expect(JSON.parse(requests.at(-1)?.body ?? '')).toEqual({ template: 'Data', network: 'open' })
})

test('nothing is left of a start whose configuration cannot be kept', async () => {
  const { lifecycle, requests } = await serve(({ method, url }, response) => {
    if (url === '/api/templates') return sendJson(response, 200, { templates: [] })
    if (method === 'PUT') return sendJson(response, 507, { error: 'full', code: 'disk_full' })
    sendJson(response, 200, { session: SESSION })
  })
  await expect(lifecycle.start({ agentConfig: { type: 'x' } })).rejects.toMatchObject({ code: 'disk_full' })
  expect(requests.slice(1).map(({ method, url }) => `${method} ${url}`)).toEqual([
    'POST /api/sessions',
    'PUT /api/sessions/s/files/agent/config.json',
    'DELETE /api/sessions/s',
  ])
})
