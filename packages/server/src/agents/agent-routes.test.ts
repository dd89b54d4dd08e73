import { readdir, rm } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { Agent, AgentDeploy, MAX_AGENT_FILES } from '@ash-ai/shared'
import fc from 'fast-check'
import type { FastifyInstance } from 'fastify'
import { pino } from 'pino'
import { pack } from 'tar-stream'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { openSecretBox } from '../db/secret-box.ts'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { createHttpApp } from '../http/http-app.ts'
import { createMetrics } from '../http/metrics.ts'
import { registerAgentRoutes } from './agent-routes.ts'

let opened: TestDb
let app: FastifyInstance

beforeAll(async () => {
  opened = await openSqliteTestDb()
  app = await makeApp(false)
  await app.listen({ port: 0, host: '127.0.0.1' })
})
afterAll(async () => {
  await app.close()
  await opened.close()
})
beforeEach(async () => {
  await opened.db.deleteFrom('agents').execute()
  await rm(join(opened.dataDir, 'agents'), { recursive: true, force: true })
})

async function makeApp(allowPathDeploy: boolean): Promise<FastifyInstance> {
  const { db, dataDir } = opened
  const made = await createHttpApp({
    db,
    apiKey: 'key',
    log: pino({ level: 'silent' }),
    metrics: createMetrics(),
    version: '0',
  })
  registerAgentRoutes(made, { db, dataDir, secrets: await openSecretBox({ dataDir }), allowPathDeploy })
  return made
}

const headers = { authorization: 'Bearer key' }
const base64 = (text: string) => Buffer.from(text).toString('base64')
const CLAUDE = { path: 'CLAUDE.md', content: base64('# hi') }
const post = (payload: object | Buffer, type = 'application/json', url = '/api/agents') =>
  app.inject({ method: 'POST', url, headers: { ...headers, 'content-type': type }, payload })
const get = async (url: string) => (await app.inject({ url, headers })).json()

async function expectNothingChanged(): Promise<void> {
  expect((await get('/api/agents')).agents).toEqual([])
  const left = await readdir(join(opened.dataDir, 'agents'), { recursive: true }).catch(() => [])
  expect(left.filter((name) => name !== '.staging')).toEqual([])
}

async function tar(...names: string[]): Promise<Buffer> {
  const archive = pack()
  for (const name of names) archive.entry({ name }, 'x')
  archive.finalize()
  const chunks: Uint8Array[] = []
  for await (const chunk of archive) chunks.push(chunk as Uint8Array)
  return Buffer.concat(chunks)
}

describe('deploying', () => {
  test('files as JSON: 201, then 200 for the same, 201 for another', async () => {
    const payload = { name: 'bot', files: [CLAUDE], env: { TOKEN: 'hunter2' }, config: { model: 'm' } }
    const first = await post(payload)
    expect(first.statusCode).toBe(201)
    expect(Agent.parse(first.json().agent)).toMatchObject({ name: 'bot', version: 1, env: { TOKEN: '***' } })
    expect(first.body).not.toContain('hunter2')
    const again = await post(payload)
    expect([again.statusCode, again.json()]).toEqual([200, first.json()])
    const changed = await post({ ...payload, config: {} })
    expect([changed.statusCode, changed.json().agent.version]).toEqual([201, 2])
  })

  test.each(['application/x-tar', 'application/gzip', 'application/x-gzip'])(
    'an archive as %s',
    async (type) => {
      const bytes = await tar('./CLAUDE.md', './bin/x')
      for (const payload of [bytes, gzipSync(bytes)]) {
        const reply = await post(payload, type, '/api/agents?name=bot')
        expect(reply.json()).toMatchObject({ agent: { name: 'bot', version: 1 } })
      }
      const { files } = await get('/api/agents/bot/files')
      expect(files.map(({ path }: { path: string }) => path)).toEqual(['CLAUDE.md', 'bin', 'bin/x'])
    },
  )

  test('a prompt alone', async () => {
    expect((await post({ name: 'bot', systemPrompt: 'be kind' })).statusCode).toBe(201)
    expect((await get('/api/agents/bot/files')).files).toHaveLength(1)
  })

  test('a folder of the server only where the operator allows it', async () => {
    const path = join(import.meta.dirname, '../../../../examples/hosted-agent')
    const refused = await post({ name: 'bot', path })
    expect([refused.statusCode, refused.json().code]).toEqual([403, 'forbidden'])
    await expectNothingChanged()
    const open = await makeApp(true)
    const deploy = (payload: object) => open.inject({ method: 'POST', url: '/api/agents', headers, payload })
    expect((await deploy({ name: 'bot', path })).statusCode).toBe(201)
    expect((await deploy({ name: 'bot', path, files: [CLAUDE] })).json().code).toBe('validation_failed')
    expect((await deploy({ name: 'bot', path: '/proc/self/environ' })).json().code).toBe('agent_invalid')
    await open.close()
  })
})

describe('reading and deleting', () => {
  test('lists, versions and one agent', async () => {
    for (const name of ['b', 'a', 'c']) await post({ name, files: [CLAUDE] })
    await post({ name: 'a', systemPrompt: 'other' })
    const page = await get('/api/agents?limit=2')
    expect([page.agents.map(({ name }: Agent) => name), page.nextCursor]).toEqual([['a', 'b'], 'b'])
    const rest = await get('/api/agents?limit=2&cursor=b')
    expect([rest.agents.map(({ name }: Agent) => name), rest.nextCursor]).toEqual([['c'], undefined])
    expect((await get('/api/agents/a')).agent.version).toBe(2)
    const { versions } = await get('/api/agents/a/versions')
    expect(versions).toMatchObject([
      { version: 2, files: 1, bytes: 5 },
      { version: 1, files: 1, bytes: 4 },
    ])
  })

  test('deleting, once', async () => {
    await post({ name: 'bot', files: [CLAUDE] })
    const remove = () => app.inject({ method: 'DELETE', url: '/api/agents/bot', headers })
    expect((await remove()).json()).toEqual({ ok: true })
    expect((await remove()).json().code).toBe('agent_not_found')
    for (const path of ['', '/versions', '/files']) {
      expect((await get(`/api/agents/bot${path}`)).code).toBe('agent_not_found')
    }
  })
})

describe('bad input names the field and changes nothing', () => {
  const names = [
    '',
    '../x',
    'a/b',
    'a b',
    '-a',
    '_a',
    '.a',
    'ünï',
    'a\0',
    'a\n',
    'x'.repeat(129),
    'x'.repeat(300),
    1,
    null,
    ['a'],
  ]
  test.each(names.map((name) => [JSON.stringify(name).slice(0, 20), name]))(
    'the name %s',
    async (_shown, name) => {
      const reply = await post({ name, files: [CLAUDE] })
      expect([reply.statusCode, reply.json().code, reply.json().details[0].path]).toEqual([
        400,
        'validation_failed',
        'name',
      ])
      if (typeof name === 'string') {
        const archive = await post(
          await tar('CLAUDE.md'),
          'application/x-tar',
          `/api/agents?name=${encodeURIComponent(name)}`,
        )
        expect([archive.statusCode, archive.json().details[0].path]).toEqual([400, 'name'])
        if (name !== '')
          expect((await get(`/api/agents/${encodeURIComponent(name)}`)).details[0].path).toBe('name')
      }
      await expectNothingChanged()
    },
  )

  test.each<[string, object, string]>([
    ['no name', { files: [CLAUDE] }, 'name'],
    ['an unknown field', { name: 'bot', files: [CLAUDE], x: 1 }, 'body'],
    ['files of the wrong type', { name: 'bot', files: 'x' }, 'files'],
    ['no files', { name: 'bot', files: [] }, 'files'],
    ['too many files', { name: 'bot', files: Array(MAX_AGENT_FILES + 1).fill(CLAUDE) }, 'files'],
    ['content that is not base64', { name: 'bot', files: [{ path: 'a', content: '%' }] }, 'files.0.content'],
    [
      'a path that leads out',
      { name: 'bot', files: [CLAUDE, { path: '../x', content: '' }] },
      'files.1.path',
    ],
    ['a path that is absolute', { name: 'bot', files: [{ path: '/x', content: '' }] }, 'files.0.path'],
    ['a bad variable', { name: 'bot', files: [CLAUDE], env: { 'A-B': 'x' } }, 'env.A-B'],
    ['a variable that is no text', { name: 'bot', files: [CLAUDE], env: { A: 1 } }, 'env.A'],
    ['an unknown option', { name: 'bot', files: [CLAUDE], config: { x: 1 } }, 'config'],
    ['a bad option', { name: 'bot', files: [CLAUDE], config: { maxTurns: 0 } }, 'config.maxTurns'],
    ['a list', [], 'body'],
  ])('%s', async (_name, payload, path) => {
    const reply = await post(payload)
    expect([reply.statusCode, reply.json().code, reply.json().details[0].path]).toEqual([
      400,
      'validation_failed',
      path,
    ])
    await expectNothingChanged()
  })

  test.each<[string, () => Promise<Buffer>, string]>([
    ['a path that leads out', () => tar('CLAUDE.md', '../x'), 'archive_invalid'],
    ['an absolute path', () => tar('CLAUDE.md', '/tmp/ash-was-here'), 'archive_invalid'],
    ['the same path twice', () => tar('CLAUDE.md', 'a', './a'), 'agent_invalid'],
    ['no CLAUDE.md', () => tar('README.md'), 'agent_invalid'],
    ['nothing', async () => Buffer.from('not a tar at all'), 'archive_invalid'],
    ['half a tar', async () => (await tar('CLAUDE.md')).subarray(0, 600), 'archive_invalid'],
    ['half a gzip', async () => gzipSync(await tar('CLAUDE.md')).subarray(0, 60), 'archive_invalid'],
    ['a gzip of garbage', async () => gzipSync(Buffer.from('garbage')), 'archive_invalid'],
  ])('an archive with %s', async (_name, bytes, code) => {
    const reply = await post(await bytes(), 'application/gzip', '/api/agents?name=bot')
    expect([reply.statusCode, reply.json().code]).toEqual([400, code])
    await expectNothingChanged()
  })

  test('an archive without a name, and a body of another type', async () => {
    expect((await post(await tar('CLAUDE.md'), 'application/x-tar')).json().code).toBe('validation_failed')
    expect((await post(Buffer.from('x'), 'application/zip')).json().code).toBe('unsupported_media_type')
    expect((await post(Buffer.alloc(0))).json().code).toBe('validation_failed')
    await expectNothingChanged()
  })

  test('a body that is too large', async () => {
    const reply = await post({
      name: 'bot',
      files: [{ path: 'a', content: base64('x'.repeat(40 * 1024 * 1024)) }],
    })
    expect([reply.statusCode, reply.json().code]).toEqual([413, 'payload_too_large'])
    await expectNothingChanged()
  })

  test('an archive that does not end is refused while it arrives, and the server lives', async () => {
    const { port } = app.server.address() as { port: number }
    const status = await new Promise<number | undefined>((resolve, reject) => {
      const options = {
        method: 'POST',
        port,
        path: '/api/agents?name=bot',
        headers: { ...headers, 'content-type': 'application/x-tar' },
      }
      const request = httpRequest(options, (reply) => {
        clearInterval(sending)
        resolve(reply.statusCode)
        request.destroy()
      })
      const block = Buffer.alloc(4 * 1024 * 1024)
      const sending = setInterval(() => request.write(block), 2)
      request.on('error', reject)
    })
    expect(status).toBe(413)
    await expectNothingChanged()
  })

  test('an upload that breaks off leaves nothing', async () => {
    const { port } = app.server.address() as { port: number }
    const options = {
      method: 'POST',
      port,
      path: '/api/agents?name=bot',
      headers: { ...headers, 'content-type': 'application/x-tar' },
    }
    const request = httpRequest(options)
    request.on('error', () => {})
    request.write((await tar('CLAUDE.md', 'b')).subarray(0, 1100))
    await expect.poll(() => readdir(join(opened.dataDir, 'agents', '.staging'))).toHaveLength(1)
    request.destroy()
    await expect.poll(() => readdir(join(opened.dataDir, 'agents', '.staging'))).toEqual([])
    await expectNothingChanged()
  })

  test.each(['limit=0', 'limit=1001', 'limit=x', 'cursor=../x', 'cursor='])('?%s', async (query) => {
    const reply = await app.inject({ url: `/api/agents?${query}`, headers })
    expect([reply.statusCode, reply.json().details[0].path]).toEqual([400, query.split('=')[0]])
  })

  test('whatever the JSON, the answer is 201, 200 or a 4xx that our own schema agrees with', async () => {
    const shape = fc.record(
      {
        name: fc.oneof(fc.constantFrom('bot', 'a-b_C9'), fc.string(), fc.jsonValue()),
        files: fc.oneof(
          fc.array(
            fc.record({ path: fc.oneof(fc.constant('CLAUDE.md'), fc.string()), content: fc.base64String() }),
            { maxLength: 3 },
          ),
          fc.jsonValue(),
        ),
        systemPrompt: fc.oneof(fc.string(), fc.jsonValue()),
        env: fc.oneof(fc.dictionary(fc.string(), fc.string()), fc.jsonValue()),
        config: fc.oneof(fc.record({ model: fc.string() }), fc.jsonValue()),
      },
      { requiredKeys: [] },
    )
    await fc.assert(
      fc.asyncProperty(shape, async (payload) => {
        const text = JSON.stringify(payload)
        fc.pre(!text.includes('__proto__') && !text.includes('constructor'))
        const { statusCode, body } = await post(Buffer.from(text))
        const isValid = AgentDeploy.safeParse(JSON.parse(text)).success
        if (!isValid) expect([statusCode, JSON.parse(body).code]).toEqual([400, 'validation_failed'])
        else expect([200, 201, 400]).toContain(statusCode)
      }),
      { numRuns: 150 },
    )
  })
})

test('the API document describes both kinds of upload', async () => {
  const document = await get('/openapi.json')
  const { content } = document.paths['/api/agents'].post.requestBody
  expect(content['application/json'].schema.$ref).toMatch(/AgentDeploy/)
  expect(content['application/x-tar'].schema).toMatchObject({ type: 'string', format: 'binary' })
  expect(document.components.schemas).toHaveProperty('Agent')
})
