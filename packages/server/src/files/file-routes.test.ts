import { mkdir, mkdtemp, readdir, readFile, rm, symlink, utimes, writeFile } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { AshError, MAX_FILE_BYTES } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import { pino } from 'pino'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { createHttpApp } from '../http/http-app.ts'
import { createMetrics } from '../http/metrics.ts'
import type { FileSource } from './checkpoint-files.ts'
import { registerFileRoutes } from './file-routes.ts'
import { FilesInMemory } from './testing/files-in-memory.ts'

const ID = '0b0e6f6e-6a1f-4a53-9c8e-5f2c1a7d9e10'
const OTHER = '11111111-6a1f-4a53-9c8e-5f2c1a7d9e10'
const headers = { authorization: 'Bearer key' }

let opened: TestDb
let app: FastifyInstance
let dir: string
let root: string
let accesses: string[]
/** What the session has instead of a folder, to be read from. */
let saved: FilesInMemory | undefined

beforeAll(async () => {
  opened = await openSqliteTestDb()
  app = await createHttpApp({
    db: opened.db,
    apiKey: 'key',
    log: pino({ level: 'silent' }),
    metrics: createMetrics(),
    version: '0',
  })
  const find = (access: string, tenantId: string, sessionId: string) => {
    accesses.push(`${tenantId} ${access}`)
    if (sessionId !== ID) throw new AshError('session_not_found', `No session ${sessionId}`)
  }
  registerFileRoutes(app, {
    async open(tenantId, sessionId, checkpointId): Promise<FileSource> {
      find(checkpointId === undefined ? 'read' : `read ${checkpointId}`, tenantId, sessionId)
      if (checkpointId === OTHER) throw new AshError('checkpoint_not_found', `No checkpoint ${checkpointId}`)
      return saved ? { checkpoint: saved } : { root }
    },
    async change(tenantId, sessionId, write) {
      find('write', tenantId, sessionId)
      return write({ root })
    },
    linkKey: Buffer.alloc(32, 1),
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
})
afterAll(async () => {
  await app.close()
  await opened.close()
  await rm(dir, { recursive: true, force: true })
})
beforeEach(async () => {
  if (dir) await rm(dir, { recursive: true, force: true })
  dir = await mkdtemp(join(tmpdir(), 'ash-routes-'))
  root = join(dir, 'workspace')
  await mkdir(root)
  await writeFile(join(dir, 'secret'), 'outside')
  accesses = []
  saved = undefined
})

const base = `/api/sessions/${ID}/files`
const call = (method: 'GET' | 'PUT' | 'DELETE' | 'POST', path: string, extra: object = {}) =>
  app.inject({ method, url: base + path, headers, ...extra })
const base64 = (text: string) => Buffer.from(text).toString('base64')

/** Sends the path exactly as it is: clients such as fetch resolve dots before sending. */
function raw(method: string, path: string): Promise<{ status: number | undefined; body: string }> {
  const { port } = app.server.address() as { port: number }
  return new Promise((resolve, reject) => {
    const request = httpRequest(
      { host: '127.0.0.1', port, method, path, headers, agent: false },
      async (reply) => {
        resolve({ status: reply.statusCode, body: Buffer.concat(await reply.toArray()).toString() })
      },
    )
    request.on('error', reject).end()
  })
}

describe('files over HTTP', () => {
  test('written as JSON, listed, read, deleted', async () => {
    const payload = {
      files: [
        { path: 'a/b.txt', content: base64('hi') },
        { path: 'run', content: '', executable: true },
      ],
    }
    const written = await call('POST', '', { payload })
    expect([written.statusCode, written.json()]).toEqual([
      200,
      {
        files: [
          { path: 'a/b.txt', size: 2 },
          { path: 'run', size: 0 },
        ],
      },
    ])
    const listed = (await call('GET', '')).json()
    expect(listed.files.map(({ path }: { path: string }) => path)).toEqual(['a', 'a/b.txt', 'run'])
    expect([listed.truncated, listed.source]).toEqual([false, 'live'])
    expect((await call('GET', '?path=a&limit=1')).json().files).toHaveLength(1)
    expect((await call('GET', '/a/b.txt?format=json')).json()).toEqual({
      path: 'a/b.txt',
      content: 'hi',
      size: 2,
    })
    expect((await call('DELETE', '/a')).json()).toEqual({ ok: true })
    expect(await readdir(root)).toEqual(['run'])
    expect(accesses).toEqual(['default write', ...Array(3).fill('default read'), 'default write'])
  })

  test('bytes come back as they are, as a download that no browser runs', async () => {
    const bytes = Buffer.from([0, 255, 60, 115, 13, 10])
    await writeFile(join(root, 'ü "x".html'), bytes)
    const reply = await call('GET', `/${encodeURIComponent('ü "x".html')}`)
    expect(reply.rawPayload).toEqual(bytes)
    expect(reply.headers).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-length': '6',
      'x-content-type-options': 'nosniff',
      'content-disposition': `attachment; filename*=UTF-8''%C3%BC%20%22x%22.html`,
    })
  })

  test('an empty file, and HEAD', async () => {
    await writeFile(join(root, 'empty'), '')
    await writeFile(join(root, 'full'), 'text')
    expect(await call('GET', '/empty')).toMatchObject({ statusCode: 200, body: '' })
    const head = await app.inject({ method: 'HEAD', url: `${base}/full`, headers })
    expect([head.statusCode, head.headers['content-length'], head.body]).toEqual([200, '4', ''])
  })

  test.each([undefined, 'application/octet-stream', 'application/json', 'text/plain', 'x/y; charset=z'])(
    'PUT takes the body as bytes, whatever its type: %s',
    async (type) => {
      const payload = Buffer.from('{"not": parsed')
      const reply = await call('PUT', '/deep/er/file', {
        payload,
        headers: { ...headers, ...(type && { 'content-type': type }) },
      })
      expect([reply.statusCode, reply.json()]).toEqual([200, { path: 'deep/er/file', size: payload.length }])
      expect(await readFile(join(root, 'deep/er/file'))).toEqual(payload)
    },
  )

  test('PUT without a body makes an empty file', async () => {
    expect((await call('PUT', '/f')).json()).toEqual({ path: 'f', size: 0 })
    expect(await readFile(join(root, 'f'), 'utf8')).toBe('')
  })

  test('a large body is streamed, one that is too large refused without a trace', async () => {
    const { port } = app.server.address() as { port: number }
    const chunk = Buffer.alloc(1024 * 1024, 7)
    const upload = (megabytes: number) =>
      fetch(`http://127.0.0.1:${port}${base}/big`, {
        method: 'PUT',
        headers,
        duplex: 'half',
        body: Readable.toWeb(Readable.from(Array(megabytes).fill(chunk))) as ReadableStream,
      })
    expect((await upload(60)).status).toBe(200)
    await rm(join(root, 'big'))
    const refused = await upload(101)
    expect([refused.status, ((await refused.json()) as { code: string }).code]).toEqual([
      413,
      'payload_too_large',
    ])
    expect(await readdir(root)).toEqual([])
    const declared = await call('PUT', '/x', {
      headers: { ...headers, 'content-length': `${MAX_FILE_BYTES + 1}` },
    })
    expect(declared.statusCode).toBe(413)
  })
})

/** Both have the same files; what a reply says must not depend on where they are. */
describe('files of a checkpoint', () => {
  const modifiedAt = new Date('2026-01-02T03:04:05Z')
  const contents = {
    'a/b.txt': 'hi',
    'a/empty': '',
    binary: Buffer.from([255, 0, 13, 10]),
    long: 'x'.repeat(1024 * 1024 + 1),
    'z/ü.html': '<script>',
  }
  beforeEach(async () => {
    for (const [path, content] of Object.entries(contents)) {
      await mkdir(join(root, path, '..'), { recursive: true })
      await writeFile(join(root, path), content)
      await utimes(join(root, path), modifiedAt, modifiedAt)
    }
    for (const folder of ['a', 'z']) await utimes(join(root, folder), modifiedAt, modifiedAt)
  })

  async function both(path: string) {
    saved = undefined
    const live = await call('GET', path)
    saved = new FilesInMemory(contents, modifiedAt)
    return [live, await call('GET', path)] as const
  }

  test.each(['', '?limit=3', '?path=a', '?path=a&limit=1', '?path=z'])(
    'are listed like those of a folder: %s',
    async (query) => {
      const [live, checkpoint] = await both(query)
      expect(live.json()).toMatchObject({ source: 'live' })
      const withoutSizes = ({ files, ...rest }: { files: { type: string; size: number }[] }) => ({
        ...rest,
        files: files.map((file) => (file.type === 'directory' ? { ...file, size: 0 } : file)),
      })
      expect(withoutSizes(checkpoint.json())).toEqual({
        ...withoutSizes(live.json()),
        source: 'checkpoint',
      })
    },
  )

  test.each([
    '/a/b.txt',
    '/a/empty',
    '/binary',
    '/long',
    '/z/%C3%BC.html',
    '/a/b.txt?format=json',
    '/a/empty?format=json',
    '/z/%C3%BC.html?format=json',
  ])('are read like those of a folder: %s', async (path) => {
    const [live, checkpoint] = await both(path)
    expect(live.statusCode).toBe(200)
    expect(checkpoint.statusCode).toBe(200)
    expect(checkpoint.rawPayload).toEqual(live.rawPayload)
    const ownHeaders = ['content-type', 'content-length', 'content-disposition', 'last-modified']
    for (const name of ownHeaders) expect(checkpoint.headers[name]).toBe(live.headers[name])
    expect(checkpoint.headers['x-content-type-options']).toBe(live.headers['x-content-type-options'])
  })

  test.each([
    ['/none', 404, 'file_not_found'],
    ['/a', 400, 'not_a_file'],
    ['/a/b.txt/c', 400, 'path_invalid'],
    ['/binary?format=json', 400, 'not_a_file'],
    ['/long?format=json', 413, 'payload_too_large'],
    ['?path=none', 404, 'file_not_found'],
    ['?path=a/b.txt', 400, 'path_invalid'],
  ])('are refused like those of a folder: %s', async (path, status, code) => {
    const [live, checkpoint] = await both(path)
    expect([live.json().code, checkpoint.json().code]).toEqual([code, code])
    expect([live.statusCode, checkpoint.statusCode]).toEqual([status, status])
  })

  test('HEAD tells the size', async () => {
    saved = new FilesInMemory(contents, modifiedAt)
    const head = await app.inject({ method: 'HEAD', url: `${base}/a/b.txt`, headers })
    expect([head.statusCode, head.headers['content-length'], head.body]).toEqual([200, '2', ''])
  })

  test('a path that is none is refused before anything is looked for', async () => {
    saved = new FilesInMemory(contents, modifiedAt)
    for (const path of ['/../secret', '/%2e%2e%2fsecret', '/a//b.txt', '/.', '/', '/a%00b']) {
      const { status, body } = await raw('GET', base + path)
      expect([status, JSON.parse(body).code]).toEqual([400, 'path_invalid'])
    }
    expect(accesses).toEqual([])
  })

  test('are not written to: changes go to the folder', async () => {
    saved = new FilesInMemory({}, modifiedAt)
    expect((await call('PUT', '/new', { payload: 'x' })).statusCode).toBe(200)
    const files = [{ path: 'newer', content: '' }]
    expect((await call('POST', '', { payload: { files } })).statusCode).toBe(200)
    expect((await call('DELETE', '/long')).statusCode).toBe(200)
    expect((await readdir(root)).sort()).toEqual(['a', 'binary', 'new', 'newer', 'z'])
    expect(accesses).toEqual(Array(3).fill('default write'))
  })

  test('can be asked for by its id, in lists and files', async () => {
    saved = new FilesInMemory(contents, modifiedAt)
    expect((await call('GET', `?checkpointId=${ID}`)).json().source).toBe('checkpoint')
    expect((await call('GET', `/a/b.txt?checkpointId=${ID}`)).body).toBe('hi')
    expect((await call('GET', `/a/b.txt?checkpointId=${ID}&format=json`)).json().content).toBe('hi')
    expect(accesses).toEqual(Array(3).fill(`default read ${ID}`))
    for (const path of ['', '/a/b.txt']) {
      expect((await call('GET', `${path}?checkpointId=${OTHER}`)).json().code).toBe('checkpoint_not_found')
      expect((await call('GET', `${path}?checkpointId=../x`)).json().details[0].path).toBe('checkpointId')
    }
  })

  test('a file whose content is gone is an error, not an empty file', async () => {
    saved = new FilesInMemory(contents, modifiedAt, new AshError('checkpoint_damaged', 'A part is missing'))
    for (const path of ['/a/b.txt', '/a/b.txt?format=json']) {
      const reply = await call('GET', path)
      expect([reply.statusCode, reply.json().code]).toEqual([500, 'checkpoint_damaged'])
    }
  })
})

describe('refusals', () => {
  test.each([
    '/../secret',
    '/..%2fsecret',
    '/%2e%2e/secret',
    '/%2e%2e%2fsecret',
    '/%2E%2E%2Fsecret',
    '/a/%2e%2e/%2e%2e/secret',
    '//etc/passwd',
    '/%2fetc%2fpasswd',
    '/.%2e/secret',
    '/a%00b',
    '/a%5cb',
    '/.',
    '/',
    '/%252e%252e%252fsecret/%2e%2e',
  ])('%s', async (path) => {
    for (const method of ['GET', 'PUT', 'DELETE']) {
      const { status, body } = await raw(method, base + path)
      expect([status, JSON.parse(body).code]).toEqual([400, 'path_invalid'])
      expect(body).not.toContain('outside')
    }
    expect(await readdir(root)).toEqual([])
    expect(await readFile(join(dir, 'secret'), 'utf8')).toBe('outside')
  })

  test('a path that is too long', async () => {
    expect((await call('GET', `/${'x'.repeat(2000)}`)).json().code).toBe('path_invalid')
    expect((await call('PUT', `/${'x/'.repeat(511)}x`)).statusCode).toBe(200)
  })

  test('a name encoded twice is just a strange name', async () => {
    expect((await raw('PUT', `${base}/%252e%252e%252fsecret`)).status).toBe(200)
    expect(await readdir(root)).toEqual(['%2e%2e%2fsecret'])
  })

  test('a link leads nowhere', async () => {
    await symlink(join(dir, 'secret'), join(root, 'link'))
    await symlink(dir, join(root, 'folder'))
    for (const path of ['/link', '/folder/secret']) {
      expect((await call('GET', path)).json().code).toBe('path_invalid')
      expect(
        (await call('PUT', path, { payload: 'x', headers: { ...headers, 'content-type': 'text/plain' } }))
          .statusCode,
      ).toBe(400)
    }
    expect((await call('GET', '?path=folder')).json().code).toBe('path_invalid')
    expect(await readFile(join(dir, 'secret'), 'utf8')).toBe('outside')
  })

  test.each([
    [{ files: [] }, 'files'],
    [{}, 'files'],
    [{ files: [{ path: '../x', content: '' }] }, 'files.0.path'],
    [
      {
        files: [
          { path: 'ok', content: '' },
          { path: '/x', content: '' },
        ],
      },
      'files.1.path',
    ],
    [{ files: [{ path: 'ok', content: 'not base64!' }] }, 'files.0.content'],
    [{ files: [{ path: 'ok', content: 1 }] }, 'files.0.content'],
    [{ files: Array(501).fill({ path: 'ok', content: '' }) }, 'files'],
    [{ files: 'ok' }, 'files'],
  ])('a faulty POST names the field and writes nothing: %#', async (payload, path) => {
    const reply = await call('POST', '', { payload })
    expect([reply.statusCode, reply.json().code, reply.json().details[0].path]).toEqual([
      400,
      'validation_failed',
      path,
    ])
    expect(await readdir(root)).toEqual([])
  })

  test('one bad path among many writes none of them', async () => {
    await symlink(dir, join(root, 'link'))
    const files = ['good', 'link/bad'].map((path) => ({ path, content: '' }))
    expect((await call('POST', '', { payload: { files } })).json().code).toBe('path_invalid')
    expect(await readdir(root)).toEqual(['link'])
  })

  test('what is not there, not a file, not text', async () => {
    await mkdir(join(root, 'd'))
    await writeFile(join(root, 'binary'), Buffer.from([255]))
    await writeFile(join(root, 'long'), 'x'.repeat(1024 * 1024 + 1))
    expect((await call('GET', '/none')).json().code).toBe('file_not_found')
    expect((await call('DELETE', '/none')).json().code).toBe('file_not_found')
    expect((await call('GET', '/d')).json().code).toBe('not_a_file')
    expect((await call('GET', '/binary?format=json')).json().code).toBe('not_a_file')
    expect((await call('GET', '/long?format=json')).json().code).toBe('payload_too_large')
    expect((await call('GET', '/binary?format=xml')).json().details[0].path).toBe('format')
    expect((await call('GET', '?limit=0')).json().details[0].path).toBe('limit')
    expect((await call('GET', '?path=../x')).json().details[0].path).toBe('path')
  })

  test('ids that are not ids, sessions of others, and no key', async () => {
    const get = (url: string, sent = headers) => app.inject({ url, headers: sent })
    expect((await get('/api/sessions/nope/files')).json().details[0].path).toBe('id')
    expect((await get('/api/sessions/..%2f..%2fetc/files/x')).json().details[0].path).toBe('id')
    expect(accesses).toEqual([])
    expect((await get(`/api/sessions/${OTHER}/files`)).json().code).toBe('session_not_found')
    expect((await get(`${base}/secret`, { authorization: 'Bearer wrong' })).statusCode).toBe(401)
  })
})
