import { createHash } from 'node:crypto'
import { Writable } from 'node:stream'
import { Credential, ErrorReply } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { registerAgentRoutes } from '../agents/agent-routes.ts'
import { insertApiKey } from '../api-keys/api-key-queries.ts'
import { openSecretBox } from '../db/secret-box.ts'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { createHttpApp } from '../http/http-app.ts'
import { createLogger } from '../http/logger.ts'
import { createMetrics } from '../http/metrics.ts'
import { registerCredentialRoutes } from './credential-routes.ts'

let opened: TestDb
let app: FastifyInstance
let logged = ''
const log = createLogger(
  'trace',
  new Writable({
    write(chunk, _encoding, done) {
      logged += chunk
      done()
    },
  }),
)

beforeAll(async () => {
  opened = await openSqliteTestDb()
  const { db, dataDir } = opened
  const key_hash = createHash('sha256').update('key-of-acme').digest('hex')
  await insertApiKey(db, { id: '1', tenant_id: 'acme', key_hash, label: '', created_at: 1 })
  app = await createHttpApp({ db, apiKey: 'key', log, metrics: createMetrics(), version: '0' })
  const secrets = await openSecretBox({ dataDir })
  registerCredentialRoutes(app, { db, secrets })
  registerAgentRoutes(app, { db, secrets, dataDir, allowPathDeploy: false })
})
afterAll(async () => {
  await app.close()
  await opened.close()
})
beforeEach(async () => {
  logged = ''
  await opened.db.deleteFrom('credentials').execute()
})

const SECRET = 'hunter2-hunter2'
const GITHUB = { name: 'github', hosts: ['api.github.com'], scheme: { type: 'bearer' }, secret: SECRET }

async function call(method: 'GET' | 'POST' | 'DELETE', path = '', payload?: object, key = 'key') {
  const reply = await app.inject({
    method,
    url: `/api/credentials${path}`,
    headers: { authorization: `Bearer ${key}` },
    ...(payload && { payload }),
  })
  expect(reply.body + JSON.stringify(reply.headers)).not.toContain('hunter2')
  expect(logged).not.toContain('hunter2')
  return { status: reply.statusCode, body: reply.json() }
}

test('one is created, read, listed, replaced and deleted, and its secret is nowhere', async () => {
  const created = await call('POST', '', GITHUB)
  expect(created.status).toBe(201)
  const credential = Credential.strict().parse(created.body.credential)
  expect(await call('GET', '/github')).toEqual({ status: 200, body: { credential } })
  expect(await call('GET')).toEqual({ status: 200, body: { credentials: [credential] } })
  await new Promise((resolve) => setTimeout(resolve, 2))
  const replaced = await call('POST', '', { ...GITHUB, hosts: ['b.test'] })
  expect(replaced).toMatchObject({ status: 200, body: { credential: { hosts: ['b.test'] } } })
  expect(await call('DELETE', '/github')).toEqual({ status: 200, body: { ok: true } })
  for (const method of ['GET', 'DELETE'] as const)
    expect(await call(method, '/github')).toMatchObject({
      status: 404,
      body: { code: 'credential_not_found' },
    })
})

test('another tenant has credentials of its own', async () => {
  await call('POST', '', GITHUB)
  expect((await call('GET', '', undefined, 'key-of-acme')).body).toEqual({ credentials: [] })
  expect((await call('GET', '/github', undefined, 'key-of-acme')).status).toBe(404)
  expect((await call('DELETE', '/github', undefined, 'key-of-acme')).status).toBe(404)
  expect((await call('POST', '', { ...GITHUB, hosts: ['c.test'] }, 'key-of-acme')).status).toBe(201)
  expect((await call('GET', '/github')).body.credential.hosts).toEqual(['api.github.com'])
})

test('without a key nothing answers', async () => {
  expect((await call('POST', '', GITHUB, 'wrong')).status).toBe(401)
  expect((await call('GET', '', undefined, 'wrong')).status).toBe(401)
})

describe('a body that cannot be used is refused by field', () => {
  test.each([
    ['name', { name: 'GitHub' }],
    ['name', { name: '-x' }],
    ['name', { name: 'x'.repeat(41) }],
    ['name', { name: 'a.b' }],
    ['name', { name: 'xn--x' }],
    ['hosts', { hosts: [] }],
    ['hosts', { hosts: Array.from({ length: 21 }, (_, n) => `h${n}.test`) }],
    ['hosts.1', { hosts: ['a.test', '*.test'] }],
    ['hosts.0', { hosts: ['https://api.github.com'] }],
    ['hosts.0', { hosts: ['http://api.github.com'] }],
    ['hosts.0', { hosts: ['api.github.com/x'] }],
    ['hosts.0', { hosts: ['x.credentials.ash'] }],
    ['scheme', { scheme: undefined }],
    ['scheme.type', { scheme: { type: 'digest' } }],
    ['scheme.name', { scheme: { type: 'header', name: 'a b' } }],
    ['scheme.name', { scheme: { type: 'header', name: 'Host' } }],
    ['scheme.name', { scheme: { type: 'header', name: 'Transfer-Encoding' } }],
    ['scheme.name', { scheme: { type: 'header', name: 'x-ash-host' } }],
    ['scheme.username', { scheme: { type: 'basic', username: 'a:b' } }],
    ['scheme.name', { scheme: { type: 'query', name: '' } }],
    ['secret', { secret: '' }],
    ['secret', { secret: `${SECRET}\r\nX-Evil: 1` }],
    ['secret', { secret: `${SECRET}ü` }],
    ['secret', { secret: ` ${SECRET}` }],
    ['secret', { secret: SECRET.repeat(2000) }],
    ['secret', { secret: [SECRET] }],
  ])('%s of %j', async (field, change) => {
    const { status, body } = await call('POST', '', { ...GITHUB, ...change })
    const error = ErrorReply.parse(body)
    expect([status, error.code]).toEqual([400, 'validation_failed'])
    expect(error.details?.map(({ path }) => path)).toContain(field)
    expect((await call('GET')).body.credentials).toEqual([])
  })

  test('unknown fields', async () => {
    expect((await call('POST', '', { ...GITHUB, [SECRET.slice(0, 4)]: 1 })).status).toBe(400)
  })

  test('a body that is not JSON is not quoted', async () => {
    const headers = { authorization: 'Bearer key', 'content-type': 'application/json' }
    const payload = `{"secret":"${SECRET}"`
    const reply = await app.inject({ method: 'POST', url: '/api/credentials', headers, payload })
    expect(reply.statusCode).toBe(400)
    expect(reply.body + logged).not.toContain('hunter2')
  })
})

test.each(['/a.b', '/..%2fx', '/A', `/${'x'.repeat(99)}`])(
  'the name %s in a path is refused',
  async (path) => {
    expect((await call('GET', path)).status).toBe(400)
    expect((await call('DELETE', path)).status).toBe(400)
  },
)

test('an agent names credentials that are there, in its request or in its folder', async () => {
  const base64 = (text: string) => Buffer.from(text).toString('base64')
  const deploy = async (config: object | undefined, options: object) => {
    const files = [
      { path: 'CLAUDE.md', content: base64('# hi') },
      { path: 'ash.json', content: base64(JSON.stringify(options)) },
    ]
    const payload = { name: 'bot', files, ...(config && { config }) }
    return app.inject({
      method: 'POST',
      url: '/api/agents',
      headers: { authorization: 'Bearer key' },
      payload,
    })
  }
  const given = await deploy({ credentials: ['github'] }, {})
  expect(given.json()).toMatchObject({ statusCode: 400, details: [{ path: 'config.credentials.0' }] })
  const inFolder = await deploy(undefined, { credentials: ['github'] })
  expect(inFolder.json()).toMatchObject({ statusCode: 400, details: [{ path: 'ash.json.credentials.0' }] })
  await call('POST', '', GITHUB)
  expect((await deploy(undefined, { credentials: ['github'] })).json()).toMatchObject({
    agent: { config: { credentials: ['github'] } },
  })
})

test('a field named secret does not reach the log, whoever logs it', () => {
  log.error({ secret: SECRET, body: { secret: SECRET }, req: { body: { secret: SECRET } } }, 'careless')
  expect(logged).toContain('careless')
  expect(logged).not.toContain('hunter2')
})
