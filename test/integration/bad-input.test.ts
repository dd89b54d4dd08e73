import {
  AgentDeploy,
  ErrorReply,
  ExecRequest,
  FilesWrite,
  MAX_EXEC_TIMEOUT_MS,
  MAX_JSON_BODY_BYTES,
  MessageSend,
  SessionCreate,
} from '@ash-ai/shared'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { base64, deployTestAgent } from './support/conversation.ts'
import type { RawRequest } from './support/raw-http.ts'
import {
  expectError,
  expectNothingChanges,
  expectRefused,
  invalid,
  post,
  type Refusal,
  request,
} from './support/refusals.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const UNKNOWN_ID = '0b7c9a52-6f0e-4a3e-9f3a-3d1c3f0d7a11'
const LONG = 'x'.repeat(300)

let server: TestServer
let sessionId: string

beforeAll(async () => {
  server = await startTestServer()
  await deployTestAgent(server.client)
  sessionId = (await server.client.sessions.create({ agent: 'zebra' })).id
})
afterAll(() => server.close())
expectNothingChanges(() => [server, sessionId])

const refuses = (raw: RawRequest, refusal: Refusal) => expectRefused(server, raw, refusal)
const claudeMd = { path: 'CLAUDE.md', content: base64('# Hi') }

/** Every POST route that takes JSON, with a body that would be accepted. */
const BODIES = [
  { path: () => '/api/agents', schema: AgentDeploy, valid: { name: 'good', files: [claudeMd] } },
  { path: () => '/api/sessions', schema: SessionCreate, valid: { agent: 'zebra' } },
  { path: () => `/api/sessions/${sessionId}/messages`, schema: MessageSend, valid: { content: 'hi' } },
  { path: () => `/api/sessions/${sessionId}/exec`, schema: ExecRequest, valid: { command: 'touch made' } },
  { path: () => `/api/sessions/${sessionId}/files`, schema: FilesWrite, valid: { files: [claudeMd] } },
]

describe('a JSON body', () => {
  for (const { path, schema, valid } of BODIES) {
    const name = schema.meta()?.id
    test(`${name}: a wrong type is refused, field by field`, async () => {
      // -1 and null are wrong for every field there is.
      for (const field of Object.keys(schema.shape)) {
        for (const wrong of [-1, null])
          await refuses(post(path(), { ...valid, [field]: wrong }), invalid(field))
      }
    })

    test(`${name}: an unknown field is refused and named`, async () => {
      await refuses(post(path(), { ...valid, bogus: 1 }), invalid('body', 'bogus'))
    })

    test(`${name}: a body that is no object, or none at all, is refused`, async () => {
      for (const json of [null, [], 'text', 7, true]) await refuses(post(path(), json), invalid('body'))
      await refuses({ method: 'POST', path: path() }, { status: 400, code: 'validation_failed' })
    })

    test(`${name}: bytes that are no JSON are refused`, async () => {
      const headers = { 'content-type': 'application/json' }
      for (const body of ['', '{', '{"a":1', 'undefined', '\0', Buffer.from([0x22, 0xff, 0x22])]) {
        await refuses(
          { method: 'POST', path: path(), headers, body },
          { status: 400, code: 'validation_failed' },
        )
      }
      const polluting = '{"__proto__":{"name":"x"},"constructor":{"prototype":{}}}'
      await refuses(
        { method: 'POST', path: path(), headers, body: polluting },
        { status: 400, code: 'validation_failed' },
      )
    })

    test(`${name}: another content type is refused`, async () => {
      const body = JSON.stringify(valid)
      for (const type of ['application/xml', 'multipart/form-data; boundary=x', 'nonsense']) {
        const refusal = { status: 415, code: 'unsupported_media_type' } as const
        await refuses({ method: 'POST', path: path(), headers: { 'content-type': type }, body }, refusal)
      }
    })
  }

  test('sent as text is refused as text, not read', async () => {
    const headers = { 'content-type': 'text/plain' }
    for (const { path, valid } of BODIES) {
      const raw = { method: 'POST', path: path(), headers, body: JSON.stringify(valid) }
      await refuses(raw, { status: 415, code: 'unsupported_media_type' })
    }
  })

  test.each([
    ['agents', { name: 'a', files: [] }, 'files'],
    ['agents', { name: 'a', files: [claudeMd, { ...claudeMd, path: 7 }] }, 'files.1.path'],
    ['agents', { name: 'a', files: [{ ...claudeMd, path: '../CLAUDE.md' }] }, 'files.0.path'],
    ['agents', { name: 'a', files: [{ ...claudeMd, path: '/CLAUDE.md' }] }, 'files.0.path'],
    ['agents', { name: 'a', files: [{ ...claudeMd, path: 'a//b' }] }, 'files.0.path'],
    ['agents', { name: 'a', files: [{ ...claudeMd, path: 'a\0b' }] }, 'files.0.path'],
    ['agents', { name: 'a', files: [{ ...claudeMd, path: LONG }] }, 'files.0.path'],
    ['agents', { name: 'a', files: [{ path: 'CLAUDE.md', content: '§§§' }] }, 'files.0.content'],
    ['agents', { name: 'a', files: [{ ...claudeMd, executable: 'yes' }] }, 'files.0.executable'],
    ['agents', { name: 'a', systemPrompt: 'x', config: { maxTurns: 'many' } }, 'config.maxTurns'],
    ['agents', { name: 'a', systemPrompt: 'x', env: { '1X': 'y' } }, 'env.1X'],
    ['sessions', { agent: 'zebra', env: { A: 1 } }, 'env.A'],
    ['sessions', { agent: 'zebra', env: { 'A=B': '' } }, 'env.A=B'],
    ['sessions', { agent: 'zebra', env: { A: 'x\0y' } }, 'env.A'],
    ['sessions', { agent: 'zebra', permissionMode: 'root' }, 'permissionMode'],
    ['sessions', { agent: 'zebra', maxTurns: 1.5 }, 'maxTurns'],
    ['sessions', { agent: 'zebra', agentVersion: '1' }, 'agentVersion'],
    ['messages', { content: '' }, 'content'],
    ['messages', { content: [] }, 'content'],
    ['messages', { content: [{ type: 'video' }] }, 'content'],
    ['messages', { content: 'x'.repeat(500_001) }, 'content'],
    ['files', { files: [{ ...claudeMd, path: 'a/../../b' }] }, 'files.0.path'],
  ])('%s: %j is refused naming %s', async (route, json, field) => {
    const path = BODIES.find((known) => known.path().endsWith(route))?.path() ?? ''
    const error = await refuses(post(path, json), invalid())
    expect(error.details?.map((detail) => detail.path).join()).toContain(field)
  })

  test.each([0, -1, 1.5, '5', null, MAX_EXEC_TIMEOUT_MS + 1, 1e300])(
    'exec: timeout %j is refused',
    async (timeout) => {
      await refuses(
        post(`/api/sessions/${sessionId}/exec`, { command: 'touch made', timeout }),
        invalid('timeout'),
      )
    },
  )

  test('larger than 50 MB is refused, told by content-length or only while it arrives', async () => {
    const refusal = { status: 413, code: 'payload_too_large' } as const
    const headers = { 'content-type': 'application/json' }
    const one = Buffer.from(' ')
    for (const { path } of BODIES) {
      const length = { ...headers, 'content-length': String(MAX_JSON_BODY_BYTES + 1) }
      await refuses({ method: 'POST', path: path(), headers: length, body: [one] }, refusal)
    }
    // One byte more than allowed, and no more: the server has then read all that was sent when it refuses.
    const chunks = Array<Uint8Array>(25).fill(Buffer.alloc(MAX_JSON_BODY_BYTES / 25, ' '))
    await refuses({ method: 'POST', path: '/api/agents', headers, body: [...chunks, one] }, refusal)
    expect((await server.client.health()).status).toBe('ok')
  })

  test('random JSON never makes a 5xx and never creates anything', async () => {
    for (const { path, schema, valid } of BODIES) {
      const shaped = fc.record(
        Object.fromEntries(Object.keys(schema.shape).map((key) => [key, fc.jsonValue({ maxDepth: 2 })])),
        { requiredKeys: [] },
      )
      const spoilt = fc
        .tuple(fc.constantFrom(...Object.keys(schema.shape)), fc.jsonValue())
        .map(([key, value]) => ({ ...valid, [key]: value }))
      const bodies = fc.oneof(fc.jsonValue(), shaped, spoilt, fc.dictionary(fc.string(), fc.jsonValue()))
      const property = fc.asyncProperty(bodies, async (json) => {
        fc.pre(!schema.safeParse(json).success)
        await refuses(post(path(), json), invalid())
      })
      await fc.assert(property, { numRuns: 60 })
    }
  })

  test('random bytes never make a 5xx and never create anything', async () => {
    const types = fc.constantFrom('application/json', 'application/x-tar', 'application/gzip', 'text/plain')
    const property = fc.asyncProperty(types, fc.uint8Array({ maxLength: 2000 }), async (type, body) => {
      const headers = { 'content-type': type }
      for (const path of ['/api/agents?name=random', '/api/sessions']) {
        const { status } = await request(server, { method: 'POST', path, headers, body })
        expect([400, 415]).toContain(status)
      }
    })
    await fc.assert(property, { numRuns: 60 })
  })
})

describe('an id', () => {
  const notIds = [
    '%2e%2e',
    '%2e%2e%2fx',
    '..%2f..%2fetc%2fpasswd',
    LONG,
    '%C3%A9%E2%82%AC',
    "1'%20OR%20'1'='1",
    '1;drop%20table%20sessions',
    '%00',
    'null',
    '-1',
    `${UNKNOWN_ID}x`,
    UNKNOWN_ID.slice(1),
  ]

  /** A form, and a socket: these say first what they want. */
  const OTHERWISE = /\/(files\/upload|terminal)$/
  /** Every method and path with a session in it, as the API document lists them. */
  async function sessionRoutes() {
    const document = JSON.parse((await request(server, { path: '/openapi.json' })).text) as {
      paths: Record<string, Record<string, unknown>>
    }
    return Object.entries(document.paths)
      .filter(([path]) => path.includes('/sessions/{id}') && !OTHERWISE.test(path))
      .flatMap(([path, methods]) =>
        Object.keys(methods).map((method) => ({ method: method.toUpperCase(), path })),
      )
  }
  const MORE_BODIES: Record<string, object> = {
    '{requestId}': { behavior: 'allow' },
    '/rollback': { checkpointId: UNKNOWN_ID },
    '/execute': { code: '1' },
    '/kernels': {},
    '/packages': { pip: ['x'] },
    '/terminals': { cols: 80, rows: 24 },
    '/mkdir': { path: 'x' },
    '/move': { from: 'x', to: 'y' },
    '/copy': { from: 'x', to: 'y' },
    '/chmod': { path: 'x', mode: '0644' },
    '/files/links': { path: 'x' },
    '/{port}/links': {},
  }
  const validBody = (path: string) =>
    Object.entries(MORE_BODIES).find(([end]) => path.endsWith(end))?.[1] ??
    BODIES.find((known) => path.endsWith(known.path().split('/').at(-1) ?? ''))?.valid
  const withId = ({ method, path }: { method: string; path: string }, id: string): RawRequest => {
    const json = method === 'PATCH' ? { network: 'none' } : method === 'POST' ? validBody(path) : undefined
    const filled = path
      .replace('{id}', id)
      .replace('{*}', 'CLAUDE.md')
      .replace(/\{(requestId|checkpointId|executionId|terminalId)\}/, UNKNOWN_ID)
      .replace('{language}', 'python')
      .replace('{name}', 'default')
      .replace('{port}', '8000')
      .replace(/diff$/, `diff?from=${UNKNOWN_ID}&to=${UNKNOWN_ID}`)
    return { method, path: filled, ...(json && { json }) }
  }

  test('that is none is refused by every route, naming it', async () => {
    const routes = await sessionRoutes()
    expect(routes.length).toBeGreaterThan(10)
    for (const route of routes) for (const id of notIds) await refuses(withId(route, id), invalid('id'))
  })

  test('of no session is not found by any route', async () => {
    for (const route of await sessionRoutes()) {
      await refuses(withId(route, UNKNOWN_ID), { status: 404, code: 'session_not_found', names: UNKNOWN_ID })
    }
  })

  test('with dots in the path leads nowhere', async () => {
    for (const path of [
      '/api/sessions/../x',
      '/api/sessions/..',
      '/api/agents/../sessions/x',
      '/api/../../etc/passwd',
    ]) {
      const { status } = await request(server, { path })
      expect([400, 404]).toContain(status)
    }
    const broken = await request(server, { path: '/api/sessions/%zz' })
    expect(broken.status).toBe(400)
    expect(ErrorReply.strict().parse(JSON.parse(broken.text)).code).toBe('validation_failed')
  })
})

describe('a key', () => {
  const unauthorized = { status: 401, code: 'unauthorized' } as const
  const routes: RawRequest[] = [
    { path: '/api/agents' },
    { path: '/metrics' },
    { path: '/nowhere' },
    { method: 'DELETE', path: '/api/agents/zebra' },
    post('/api/agents', { name: 'sneaked', files: [claudeMd] }),
    post('/api/sessions', { agent: 'zebra' }),
  ]

  test('that is missing, wrong or malformed opens nothing', async () => {
    const { apiKey } = server
    const headers = [
      undefined,
      '',
      apiKey,
      'Bearer',
      'Bearer ',
      'Bearer null',
      `Basic ${apiKey}`,
      `Bearer ${apiKey}x`,
      `Bearer ${apiKey.slice(0, -1)}`,
      `Bearer ${apiKey.toUpperCase()}`,
      `Bearer ${apiKey} ${apiKey}`,
      `Bearer "${apiKey}"`,
      `Bearer ${'x'.repeat(5000)}`,
      "Bearer ' OR 1=1 --",
    ]
    for (const route of routes) {
      for (const authorization of headers) {
        const bare = authorization === undefined ? {} : { authorization }
        const reply = await request({ ...server, apiKey: '' }, { ...route, headers: bare })
        expectError(reply, unauthorized)
      }
    }
    await refuses({ path: `/api/agents?api_key=${apiKey}`, headers: { authorization: '' } }, unauthorized)
  })
})

describe('a path', () => {
  test.each([
    ['PUT', '/api/agents', 'GET, HEAD, POST'],
    ['POST', '/api/agents/zebra', 'DELETE, GET, HEAD'],
    ['DELETE', '/api/sessions', 'GET, HEAD, POST'],
    ['POST', '/health', 'GET, HEAD'],
    ['GET', `/api/sessions/${UNKNOWN_ID}/exec`, 'POST'],
    ['PATCH', `/api/sessions/${UNKNOWN_ID}/files/a`, 'DELETE, GET, HEAD, PUT'],
  ])('%s %s is answered with the methods it has', async (method, path, allowed) => {
    const reply = await request(server, { method, path })
    expectError(reply, { status: 405, code: 'method_not_allowed', names: method })
    expect(reply.headers.allow).toBe(allowed)
  })

  test('that does not exist is not found', async () => {
    for (const path of ['/', '/api', '/api/nothing', '/api/agents/zebra/', '/API/agents', '//', `/${LONG}`]) {
      await refuses({ path }, { status: 404, code: 'route_not_found', names: path })
    }
  })
})

test('a limit or cursor that is none is refused', async () => {
  const messages = `/api/sessions/${sessionId}/messages`
  for (const path of ['/api/agents', '/api/sessions', messages, `/api/sessions/${sessionId}/files`]) {
    for (const limit of ['0', '-1', '1.5', 'abc', '', '10001', '1e9', 'NaN']) {
      await refuses({ path: `${path}?limit=${limit}` }, invalid('limit'))
    }
  }
  for (const path of ['/api/agents', '/api/sessions', messages]) {
    for (const cursor of ['..%2fx', '%27%20or%201=1', LONG, '%00']) {
      const error = await refuses({ path: `${path}?cursor=${cursor}` }, invalid())
      expect(error.details?.map((detail) => detail.path)).toEqual(['cursor'])
    }
  }
  await refuses({ path: `${messages}?after=-1` }, invalid('after'))
  await refuses({ path: `/api/sessions/${sessionId}/stream?after=x` }, invalid('after'))
  await refuses({ path: '/api/sessions?status=asleep' }, invalid('status'))
})
