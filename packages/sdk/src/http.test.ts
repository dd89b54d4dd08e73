import { isAshError } from '@ash-ai/shared'
import { afterEach, describe, expect, test } from 'vitest'
import { AshClient, type AshClientOptions } from './client.ts'
import { AshApiError, AshConnectionError, AshReplyError } from './errors.ts'
import { sendJson, startServer, type TestServer } from './testing/http-server.ts'

const HEALTH = { status: 'ok', version: '1' }
const servers: TestServer[] = []
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()))
})

async function serve(
  answer: Parameters<typeof startServer>[0],
  options: AshClientOptions = {},
): Promise<{ client: AshClient; server: TestServer }> {
  const server = await startServer(answer)
  servers.push(server)
  return { server, client: new AshClient({ baseUrl: server.url, apiKey: 'k', ...options }) }
}

const failure = (promise: Promise<unknown>) =>
  promise.then(
    () => expect.unreachable('should have failed'),
    (error: unknown) => error,
  )

describe('requests', () => {
  test('carry the key, query and JSON, and return what the reply holds', async () => {
    const { client, server } = await serve((_, response) => sendJson(response, 200, { agents: [] }))
    expect(await client.agents.list({ limit: 5 })).toEqual({ agents: [] })
    expect(server.requests[0]).toMatchObject({ method: 'GET', url: '/api/agents?limit=5' })
    expect(server.requests[0]?.headers.authorization).toBe('Bearer k')
  })

  test('keep a path prefix of the base URL', async () => {
    const { server } = await serve((_, response) => sendJson(response, 200, HEALTH))
    await new AshClient({ baseUrl: `${server.url}/ash/` }).health()
    expect(server.requests[0]?.url).toBe('/ash/health')
  })

  test('accept an empty 204 where the reply says nothing', async () => {
    const { client } = await serve((_, response) => response.writeHead(204).end())
    await client.agents.delete('a')
  })

  test('never leave the resource they name', async () => {
    const { client, server } = await serve((_, response) => sendJson(response, 200, {}))
    expect(isAshError(await failure(client.sessions.end('..')), 'validation_failed')).toBe(true)
    expect(isAshError(await failure(client.files.read('s', 'a/../../b')), 'path_invalid')).toBe(true)
    expect(server.requests).toEqual([])
  })

  test('encode odd names, file paths and raw bodies', async () => {
    const { client, server } = await serve((_, response) => sendJson(response, 200, { path: 'x', size: 1 }))
    await client.files.write('s', 'a b/ü?.txt', 'é')
    expect(server.requests[0]).toMatchObject({
      method: 'PUT',
      url: '/api/sessions/s/files/a%20b/%C3%BC%3F.txt',
      body: 'é',
    })
  })
})

describe('errors', () => {
  test('of the server keep code, details, request id and retry-after', async () => {
    const details = [{ path: 'agent', message: 'required' }]
    const reply = { error: 'no', code: 'validation_failed', statusCode: 400, requestId: 'r1', details }
    const { client } = await serve((_, response) => sendJson(response, 400, reply, { 'retry-after': '7' }))
    const error = await failure(client.sessions.create({ agent: 'x' }))
    expect(error).toBeInstanceOf(AshApiError)
    expect(error).toMatchObject({
      code: 'validation_failed',
      message: 'no',
      statusCode: 400,
      requestId: 'r1',
    })
    expect(error).toMatchObject({ details, retryAfterSeconds: 7 })
  })

  test.each([
    ['an unknown code', 418, '{"error":"new","code":"tea"}', { message: 'new', code: 'tea', status: 418 }],
    ['a page of a proxy', 502, '<html>\n<b>Bad</b>', { message: 'HTTP 502: <html> <b>Bad</b>', status: 502 }],
    ['an empty body', 500, '', { message: 'HTTP 500 with an empty body', status: 500 }],
  ])('with %s are AshReplyErrors', async (_, status, body, expected) => {
    const { client } = await serve((_request, response) => response.writeHead(status).end(body))
    const error = await failure(client.agents.get('a'))
    expect(error).toBeInstanceOf(AshReplyError)
    expect(error).toMatchObject(expected)
  })

  test.each(['<html>hello</html>', '[]', '{}', '"x"', ''])('a 200 with %j is no Ash reply', async (body) => {
    const { client } = await serve((_, response) => response.writeHead(200).end(body))
    expect(await failure(client.agents.list())).toBeInstanceOf(AshReplyError)
  })

  test('of the network say that the server cannot be reached', async () => {
    const { server } = await serve(() => {})
    await server.close()
    const error = await failure(new AshClient({ baseUrl: server.url, retries: 0 }).health())
    expect(error).toBeInstanceOf(AshConnectionError)
    expect(error).toMatchObject({ reason: 'refused' })
  })
})

describe('retries', () => {
  test('a lost GET is repeated', async () => {
    const { client, server } = await serve((_, response, index) =>
      index < 2 ? response.destroy() : sendJson(response, 200, HEALTH),
    )
    expect(await client.health()).toEqual(HEALTH)
    expect(server.requests).toHaveLength(3)
  })

  test('a reply cut in the middle of its body is repeated', async () => {
    const { client, server } = await serve((_, response, index) => {
      if (index > 0) return sendJson(response, 200, HEALTH)
      response.writeHead(200, { 'content-length': 1000 }).write('{"status"')
      setTimeout(() => response.destroy(), 20)
    })
    expect(await client.health()).toEqual(HEALTH)
    expect(server.requests).toHaveLength(2)
  })

  test('a lost POST is not repeated: the server may have acted', async () => {
    const { client, server } = await serve((_, response) => response.destroy())
    expect(await failure(client.sessions.create({ agent: 'a' }))).toMatchObject({ reason: 'lost' })
    expect(server.requests).toHaveLength(1)
  })

  test('a refused POST is repeated: nothing was sent', async () => {
    const { server } = await serve(() => {})
    await server.close()
    const client = new AshClient({ baseUrl: server.url })
    const created = client.sessions.create({ agent: 'a' })
    const session = { id: 's' }
    servers.push(await startServer((_, response) => sendJson(response, 201, { session }), server.port))
    expect(await created).toEqual(session)
  })

  test('a 503 with Retry-After is repeated for a GET, not without it and not for a POST', async () => {
    const busy = { error: 'full', code: 'pool_full', statusCode: 503, requestId: 'r' }
    const { client, server } = await serve((request, response, index) => {
      if (request.url === '/health' && index > 0) return sendJson(response, 200, HEALTH)
      sendJson(response, 503, busy, request.url.endsWith('/a') ? {} : { 'retry-after': '0' })
    })
    expect(await client.health()).toEqual(HEALTH)
    expect(isAshError(await failure(client.agents.get('a')), 'pool_full')).toBe(true)
    expect(isAshError(await failure(client.sessions.create({ agent: 'a' })), 'pool_full')).toBe(true)
    expect(server.requests.map((request) => request.url)).toEqual([
      '/health',
      '/health',
      '/api/agents/a',
      '/api/sessions',
    ])
  })

  test('a call can have its own number of them', async () => {
    const { client, server } = await serve((_, response) => response.destroy())
    expect(await failure(client.health({ retries: 0 }))).toMatchObject({ reason: 'lost' })
    expect(server.requests).toHaveLength(1)
  })

  test('are bounded', async () => {
    const { client, server } = await serve((_, response) => response.destroy(), { retries: 1 })
    expect(await failure(client.health())).toMatchObject({ reason: 'lost' })
    expect(server.requests).toHaveLength(2)
  })
})

describe('time', () => {
  test('a silent server ends in a time-out', async () => {
    const { client, server } = await serve(() => {}, { timeoutMs: 50 })
    expect(await failure(client.health())).toMatchObject({ name: 'AshConnectionError', reason: 'timeout' })
    expect(server.requests).toHaveLength(1)
  })

  test.each<[string, (client: AshClient) => Promise<unknown>]>([
    ['created', ({ sessions }) => sessions.create({ agent: 'a' })],
    ['resumed', ({ sessions }) => sessions.resume('s')],
  ])('a session that is %s may take longer than other requests: it may wait for a set-up', async (_, ask) => {
    const answer = Promise.withResolvers<void>()
    const { client } = await serve(
      (request, response) => {
        if (request.url !== '/health')
          void answer.promise.then(() => sendJson(response, 200, { session: {} }))
      },
      { timeoutMs: 50 },
    )
    const asked = ask(client)
    asked.catch(() => {}) // Told below.
    expect(await failure(client.health())).toMatchObject({ reason: 'timeout' })
    answer.resolve()
    expect(await asked).toEqual({})
  })

  test('a body that stops coming ends in a time-out', async () => {
    const { client } = await serve((_, response) => response.writeHead(200).write('{'))
    expect(await failure(client.health({ timeoutMs: 50 }))).toMatchObject({ reason: 'timeout' })
  })

  test('the caller can abort, during a request and between retries', async () => {
    const { client } = await serve((request, response) => {
      if (request.url === '/health') response.destroy()
    })
    for (const call of [client.health.bind(client), client.agents.list.bind(client.agents)]) {
      const abort = new AbortController()
      const pending = failure(call({ signal: abort.signal }))
      setTimeout(() => abort.abort(), 30)
      expect(await pending).toMatchObject({ name: 'AbortError' })
    }
  })

  test('an aborted signal sends nothing', async () => {
    const { client, server } = await serve((_, response) => sendJson(response, 200, HEALTH))
    expect(await failure(client.health({ signal: AbortSignal.abort() }))).toMatchObject({
      name: 'AbortError',
    })
    expect(server.requests).toEqual([])
  })
})
