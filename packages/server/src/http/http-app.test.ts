import { createHash } from 'node:crypto'
import { request as httpRequest } from 'node:http'
import { connect } from 'node:net'
import { Writable } from 'node:stream'
import { AshError, ErrorReply } from '@ash-ai/shared'
import type { FastifyInstance, InjectOptions } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { insertApiKey } from '../api-keys/api-key-queries.ts'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { createHttpApp } from './http-app.ts'
import { createLogger } from './logger.ts'
import { createMetrics } from './metrics.ts'
import { registerPlatformRoutes } from './platform-routes.ts'
import { parseInput } from './validation-error.ts'

const DB_KEY = 'ash_key-of-another-tenant'
const ENV_KEY = 'key-of-the-operator'
const auth = { authorization: `Bearer ${ENV_KEY}` }

let opened: TestDb
let app: FastifyInstance
let logged = ''
let providerProblem: Error | undefined

beforeAll(async () => {
  opened = await openSqliteTestDb()
  await insertApiKey(opened.db, {
    id: '1',
    tenant_id: 'acme',
    key_hash: createHash('sha256').update(DB_KEY).digest('hex'),
    label: '',
    created_at: 1,
  })
  app = await makeApp()
})
afterAll(async () => {
  await app.close()
  await opened.close()
})
beforeEach(() => {
  logged = ''
  providerProblem = undefined
})

async function makeApp(): Promise<FastifyInstance> {
  const sink = new Writable({
    write(chunk, _encoding, done) {
      logged += chunk
      done()
    },
  })
  const made = await createHttpApp({
    db: opened.db,
    apiKey: ENV_KEY,
    log: createLogger('info', sink),
    metrics: createMetrics(),
    version: '1.2.3',
  })
  addTestRoutes(made)
  return made
}

function addTestRoutes(made: FastifyInstance): void {
  registerPlatformRoutes(made, {
    db: opened.db,
    describe: () => ({
      version: '1.2.3',
      database: 'sqlite',
      provider: 'bwrap',
      isolation: 'bwrap',
      limits: { backend: 'cgroup-v2', enforcement: { memoryMb: 'hard' } },
      model: 'offline',
      sandboxes: { live: 0, max: 1 },
    }),
    checkProvider: async () => {
      if (providerProblem) throw providerProblem
    },
  })
  const routes = made.withTypeProvider<ZodTypeProvider>()
  const Body = z.strictObject({ list: z.array(z.strictObject({ n: z.number() })) })
  routes.get('/test/tenant', async (request) => ({ tenantId: request.tenantId }))
  routes.post('/test/body', { schema: { body: Body } }, async () => ({ ok: true }))
  routes.post('/test/parsed', async (request) => parseInput(Body, request.body))
  routes.get(
    '/test/items/:id',
    {
      schema: {
        params: z.object({ id: z.uuid() }),
        querystring: z.object({ limit: z.coerce.number().max(5) }),
      },
    },
    async () => ({ ok: true }),
  )
  routes.get('/test/crash', async () => {
    throw new Error('secret path /etc/shadow')
  })
  routes.get('/test/zod-crash', async () => z.string().parse(1))
  routes.get('/test/busy', async () => {
    throw new AshError('pool_full', 'All 3 sandboxes are running', { retryAfterSeconds: 1.5 })
  })
  routes.get('/test/log', async (request) => {
    request.log.info({ req: { headers: request.headers } }, 'careless')
    return {}
  })
}

/** The reply as an error, checked against the schema that clients use. */
async function errorOf(options: InjectOptions) {
  const reply = await app.inject({ headers: auth, ...options })
  const body = ErrorReply.parse(reply.json())
  expect(body.statusCode).toBe(reply.statusCode)
  expect(body.requestId).toBe(reply.headers['x-request-id'])
  return { ...body, headers: reply.headers }
}

describe('keys', () => {
  test.each([
    [ENV_KEY, 'default'],
    [DB_KEY, 'acme'],
  ])('%s belongs to %s', async (key, tenantId) => {
    const reply = await app.inject({ url: '/test/tenant', headers: { authorization: `Bearer ${key}` } })
    expect(reply.json()).toEqual({ tenantId })
  })

  test.each([
    undefined,
    '',
    'Bearer',
    'Bearer ',
    `Basic ${ENV_KEY}`,
    ENV_KEY,
    `Bearer ${ENV_KEY}x`,
    `Bearer ${ENV_KEY.slice(0, -1)}`,
    `Bearer ${ENV_KEY} ${ENV_KEY}`,
    `Bearer ${createHash('sha256').update(DB_KEY).digest('hex')}`,
    `Bearer ' or 1=1 --`,
    `Bearer ${'x'.repeat(8000)}`,
  ])('%s is refused, with how to do it right', async (authorization) => {
    const headers = authorization === undefined ? {} : { authorization }
    const error = await errorOf({ url: '/test/tenant', headers })
    expect(error).toMatchObject({
      code: 'unauthorized',
      error: expect.stringContaining('Authorization: Bearer'),
    })
    expect(error.error).not.toContain(opened.dataDir)
  })

  test.each(['/metrics', '/nowhere', '/test/tenant', '//health', '/health/', '/docsx', '/docs/../metrics'])(
    '%s needs one',
    async (path) => {
      expect(await rawStatus(path)).toBe(401)
    },
  )

  test.each(['/health', '/ready', '/openapi.json', '/docs/', '/docs/static/swagger-ui.css'])(
    '%s is public',
    async (url) => {
      expect((await app.inject({ url })).statusCode).toBe(200)
    },
  )

  test('no key reaches the log', async () => {
    await app.inject({ url: '/test/log', headers: auth })
    await app.inject({ url: '/test/tenant', headers: { authorization: 'Bearer wrong-key' } })
    expect(logged).toContain('careless')
    expect(logged).not.toContain(ENV_KEY)
    expect(logged).not.toContain('wrong-key')
  })
})

/** Without the client side tidying the path. */
async function rawStatus(path: string): Promise<number | undefined> {
  const { port } = await listening()
  return new Promise((resolve, reject) => {
    const request = httpRequest({ host: '127.0.0.1', port, path, agent: false }, (reply) => {
      reply.resume()
      resolve(reply.statusCode)
    })
    request.on('error', reject).end()
  })
}

async function listening(): Promise<{ port: number }> {
  if (!app.server.listening) await app.listen({ port: 0, host: '127.0.0.1' })
  const address = app.server.address()
  if (typeof address !== 'object' || !address) throw new Error('no address')
  return address
}

describe('errors', () => {
  test('a body names each wrong field', async () => {
    const payload = { list: [{ n: 1 }, { n: 'x' }], extra: 1 }
    for (const url of ['/test/body', '/test/parsed']) {
      const error = await errorOf({ method: 'POST', url, payload })
      expect(error).toMatchObject({ code: 'validation_failed', statusCode: 400 })
      expect(error.details?.map(({ path }) => path)).toEqual(['list.1.n', 'body'])
      expect(error.error).toContain('list.1.n: ')
      expect(error.error).toContain('extra')
    }
  })

  test('parameters and query are named alike', async () => {
    const id = crypto.randomUUID()
    expect((await errorOf({ url: '/test/items/nope?limit=1' })).details?.[0]?.path).toBe('id')
    expect((await errorOf({ url: `/test/items/${id}?limit=9` })).details?.[0]?.path).toBe('limit')
    expect((await errorOf({ url: `/test/items/${id}` })).details?.[0]?.path).toBe('limit')
    expect((await errorOf({ url: `/test/items/${'x'.repeat(300)}?limit=1` })).details?.[0]?.path).toBe('id')
  })

  const json = { ...auth, 'content-type': 'application/json' }
  test.each([
    ['broken JSON', { headers: json, payload: '{' }, 'validation_failed'],
    ['an empty body', { headers: json, payload: '' }, 'validation_failed'],
    ['no body', {}, 'validation_failed'],
    ['a forbidden key', { headers: json, payload: '{"__proto__":{}}' }, 'validation_failed'],
    [
      'another type',
      { headers: { ...auth, 'content-type': 'text/xml' }, payload: '<a/>' },
      'unsupported_media_type',
    ],
    ['a huge body', { headers: json, payload: Buffer.alloc(50 * 1024 * 1024 + 1, 32) }, 'payload_too_large'],
  ])('%s', async (_name, options: InjectOptions, code) => {
    expect(await errorOf({ method: 'POST', url: '/test/body', ...options })).toMatchObject({ code })
  })

  test('an unknown path and a wrong method are told apart', async () => {
    expect(await errorOf({ url: '/api/nothing' })).toMatchObject({ code: 'route_not_found', statusCode: 404 })
    const wrong = await errorOf({ method: 'DELETE', url: '/test/items/1?x' })
    expect(wrong).toMatchObject({ code: 'method_not_allowed', statusCode: 405 })
    expect(wrong.headers.allow).toBe('GET, HEAD')
  })

  test.each(['/test/crash', '/test/zod-crash'])(
    '%s tells the log everything, the client nothing',
    async (url) => {
      const error = await errorOf({ url })
      expect(error).toMatchObject({ code: 'internal_error', statusCode: 500 })
      expect(error.error).not.toMatch(/secret|expected/)
      expect(logged).toContain(error.requestId)
      expect(logged).toMatch(/secret path|expected/)
    },
  )

  test('an error with a delay sets Retry-After', async () => {
    const error = await errorOf({ url: '/test/busy' })
    expect(error).toMatchObject({ code: 'pool_full', error: 'All 3 sandboxes are running' })
    expect(error.headers['retry-after']).toBe('2')
  })

  test('a malformed percent encoding', async () => {
    const { port } = await listening()
    const reply = await fetch(`http://127.0.0.1:${port}/test/items/%zz`, { headers: auth })
    expect(ErrorReply.parse(await reply.json())).toMatchObject({ code: 'validation_failed', statusCode: 400 })
  })

  test.each([
    ['NOT HTTP\r\n\r\n', 400],
    [`GET / HTTP/1.1\r\nhost: x\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`, 431],
  ])('bytes that are not a request we take', async (bytes, statusCode) => {
    const { port } = await listening()
    const text = await new Promise<string>((resolve, reject) => {
      let received = ''
      const socket = connect(port, '127.0.0.1', () => socket.write(bytes))
      socket.on('data', (chunk) => {
        received += chunk
      })
      socket.on('close', () => resolve(received)).on('error', reject)
    })
    expect(text).toMatch(new RegExp(`^HTTP/1.1 ${statusCode} `))
    expect(JSON.parse(text.slice(text.indexOf('\r\n\r\n')))).toMatchObject({
      code: 'validation_failed',
      statusCode,
    })
  })
})

describe('platform', () => {
  test('/health describes the server', async () => {
    const body = (await app.inject({ url: '/health' })).json()
    expect(body).toMatchObject({ status: 'ok', version: '1.2.3', database: 'sqlite', model: 'offline' })
  })

  test('/ready checks database and provider', async () => {
    expect((await app.inject({ url: '/ready' })).json()).toEqual({
      ready: true,
      checks: { database: 'ok', provider: 'ok' },
    })
  })

  test('/ready shows our own reasons and hides others', async () => {
    providerProblem = new AshError('provider_unavailable', 'bwrap is not installed')
    const told = await app.inject({ url: '/ready' })
    expect([told.statusCode, told.json().checks.provider]).toEqual([503, 'bwrap is not installed'])
    providerProblem = new Error('secret')
    const hidden = await app.inject({ url: '/ready' })
    expect([hidden.statusCode, hidden.json().checks.provider]).toEqual([503, 'failed; the log says why'])
    expect(logged).toContain('secret')
  })

  test('/metrics counts by route and not by URL', async () => {
    await app.inject({ url: `/test/items/${crypto.randomUUID()}?limit=1`, headers: auth })
    await app.inject({ url: '/no/such/path', headers: auth })
    const { body, headers } = await app.inject({ url: '/metrics', headers: auth })
    expect(headers['content-type']).toContain('text/plain')
    expect(body).toMatch(/duration_seconds_count\{method="GET",route="\/test\/items\/:id",status="200"\} 1/)
    expect(body).toContain('route="unknown",status="404"')
    expect(body).not.toContain('/no/such/path')
    expect(body).toContain('process_cpu_seconds_total')
  })

  test('/openapi.json describes the routes, and the page is there', async () => {
    const document = (await app.inject({ url: '/openapi.json' })).json()
    expect(document.openapi).toMatch(/^3\.1/)
    expect(document.security).toEqual([{ bearer: [] }])
    expect(document.paths['/health'].get.security).toEqual([])
    expect(
      document.paths['/test/items/{id}'].get.parameters.map(({ name }: { name: string }) => name),
    ).toEqual(expect.arrayContaining(['id', 'limit']))
    const errorSchema = document.paths['/test/body'].post.responses.default.content['application/json'].schema
    expect(errorSchema).toEqual({ $ref: '#/components/schemas/Error' })
    expect(Object.keys(document.paths).filter((path) => path.startsWith('/docs'))).toEqual([])
  })

  test('a server that is stopping says so', async () => {
    const stopping = await makeApp()
    const { promise, resolve } = Promise.withResolvers<void>()
    stopping.addHook('preClose', () => promise)
    await stopping.listen({ port: 0, host: '127.0.0.1' })
    const url = `http://127.0.0.1:${(stopping.server.address() as { port: number }).port}/health`
    const closing = stopping.close()
    await new Promise(setImmediate)
    const reply = await fetch(url)
    expect([
      reply.status,
      reply.headers.get('retry-after'),
      ErrorReply.parse(await reply.json()).code,
    ]).toEqual([503, '5', 'server_stopping'])
    resolve()
    await closing
  })
})
