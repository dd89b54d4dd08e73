import { chmod, lstat, mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { AshError, parseSSE } from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import { pino } from 'pino'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { createHttpApp } from '../http/http-app.ts'
import { createMetrics } from '../http/metrics.ts'
import { signLink } from './file-links.ts'
import { registerFileRoutes } from './file-routes.ts'
import { FilesInMemory } from './testing/files-in-memory.ts'
import { HostileWorkspace } from './testing/hostile-workspace.ts'

const ID = '0b0e6f6e-6a1f-4a53-9c8e-5f2c1a7d9e10'
const OTHER = '11111111-6a1f-4a53-9c8e-5f2c1a7d9e10'
const headers = { authorization: 'Bearer key' }
const linkKey = Buffer.alloc(32, 1)
const MAX_BYTES = 1024 * 1024

let opened: TestDb
let app: FastifyInstance
let origin: string
let workspace: HostileWorkspace
let saved: FilesInMemory | undefined
let hasEnded: boolean
let writers: string[]

beforeAll(async () => {
  opened = await openSqliteTestDb()
  const log = pino({ level: 'silent' })
  app = await createHttpApp({ db: opened.db, apiKey: 'key', log, metrics: createMetrics(), version: '0' })
  const check = (sessionId: string) => {
    if (sessionId !== ID) throw new AshError('session_not_found', `No session ${sessionId}`)
    if (hasEnded) throw new AshError('session_ended', 'It has ended')
  }
  registerFileRoutes(app, {
    async open(_tenantId, sessionId) {
      check(sessionId)
      return saved ? { checkpoint: saved } : { root: workspace.root }
    },
    async change(tenantId, sessionId, write) {
      check(sessionId)
      writers.push(tenantId)
      return write({ root: workspace.root, maxFileBytes: MAX_BYTES })
    },
    linkKey,
  })
  origin = await app.listen({ port: 0, host: '127.0.0.1' })
})
afterAll(async () => {
  // `fetch` opens connections again that were broken off, and uses them for nothing.
  app.server.closeAllConnections()
  await app.close()
  await opened.close()
})
beforeEach(async () => {
  workspace = await HostileWorkspace.create()
  saved = undefined
  hasEnded = false
  writers = []
})
afterEach(() => workspace.remove())

const base = `/api/sessions/${ID}/files`
const at = (path: string) => workspace.at(path)
type Method = 'GET' | 'PUT' | 'DELETE' | 'POST' | 'HEAD'
const call = (method: Method, path: string, extra: { headers?: object; payload?: string | object } = {}) =>
  app.inject({ method, url: base + path, ...extra, headers: { ...headers, ...extra.headers } })
const post = (action: string, payload: object) => call('POST', `/${action}`, { payload })
const codeOf = (reply: { statusCode: number; json(): { code: string } }) => [
  reply.statusCode,
  reply.json().code,
]

describe('stat', () => {
  test('tells what is there, and follows no link', async () => {
    await writeFile(at('run'), 'text')
    await chmod(at('run'), 0o755)
    await symlink(workspace.outside, at('link'))
    expect((await call('GET', '/run?stat')).json()).toEqual({
      path: 'run',
      type: 'file',
      size: 4,
      mode: '0755',
      modifiedAt: (await lstat(at('run'))).mtime.toISOString(),
      etag: expect.stringMatching(/^"[0-9a-z-]+"$/),
    })
    expect((await call('GET', '/link?stat=')).json()).toMatchObject({
      type: 'link',
      linkTarget: workspace.outside,
    })
    expect(codeOf(await call('GET', '/link/secret.txt?stat'))).toEqual([400, 'path_invalid'])
    expect(codeOf(await call('GET', '/none?stat'))).toEqual([404, 'file_not_found'])
  })

  test('knows the files of a checkpoint', async () => {
    saved = new FilesInMemory({ 'a/b.txt': 'hi' }, new Date('2026-01-02T03:04:05Z'))
    const file = { path: 'a/b.txt', type: 'file', size: 2, modifiedAt: '2026-01-02T03:04:05.000Z' }
    const { etag, ...stat } = (await call('GET', '/a/b.txt?stat')).json()
    expect(stat).toEqual(file)
    expect((await call('HEAD', '/a/b.txt')).headers.etag).toBe(etag)
    expect(codeOf(await call('GET', '/a/c.txt?stat'))).toEqual([404, 'file_not_found'])
  })
})

describe('reading', () => {
  test.each([false, true])('a range gives a part of it, from a checkpoint: %s', async (isSaved) => {
    if (isSaved) saved = new FilesInMemory({ f: '0123456789' }, new Date())
    else await writeFile(at('f'), '0123456789')
    const range = (text: string, extra = {}) => call('GET', '/f', { headers: { range: text, ...extra } })
    const part = await range('bytes=2-4')
    expect([
      part.statusCode,
      part.body,
      part.headers['content-range'],
      part.headers['content-length'],
    ]).toEqual([206, '234', 'bytes 2-4/10', '3'])
    expect((await range('bytes=-2')).body).toBe('89')
    expect((await range('bytes=0-1,3-4')).statusCode).toBe(200)
    const beyond = await range('bytes=10-')
    expect([...codeOf(beyond), beyond.headers['content-range']]).toEqual([
      416,
      'range_not_satisfiable',
      'bytes */10',
    ])
    const etag = String(part.headers.etag)
    expect((await range('bytes=0-0', { 'if-range': etag })).statusCode).toBe(206)
    expect((await range('bytes=0-0', { 'if-range': '"other"' })).statusCode).toBe(200)
  })

  test('an etag stays while the file does', async () => {
    await writeFile(at('f'), 'one')
    const { etag } = (await call('HEAD', '/f')).headers
    const same = await call('GET', '/f', { headers: { 'if-none-match': `"x", ${etag}` } })
    expect([same.statusCode, same.body, same.headers.etag]).toEqual([304, '', etag])
    await writeFile(at('f'), 'two')
    expect((await call('GET', '/f', { headers: { 'if-none-match': etag } })).body).toBe('two')
  })

  test('HEAD reads nothing, and a file called search is a file', async () => {
    await writeFile(at('search'), 'text')
    const head = await call('HEAD', '/search')
    expect([head.statusCode, head.headers['content-length'], head.body]).toEqual([200, '4', ''])
    expect((await call('GET', '/search')).body).toBe('text')
    expect((await call('GET', '/search?stat')).json().size).toBe(4)
    expect((await call('GET', '/search?query=sea')).json().files[0].path).toBe('search')
  })
})

describe('writing', () => {
  test('goes on only where the conditions hold', async () => {
    const put = (payload: string, conditions: object) => call('PUT', '/f', { payload, headers: conditions })
    const first = await put('one', { 'if-none-match': '*' })
    expect(first.statusCode).toBe(200)
    expect(codeOf(await put('two', { 'if-none-match': '*' }))).toEqual([412, 'precondition_failed'])
    expect(codeOf(await put('two', { 'if-match': '"other"' }))).toEqual([412, 'precondition_failed'])
    expect(await readFile(at('f'), 'utf8')).toBe('one')
    const second = await put('two', { 'if-match': first.headers.etag })
    expect(second.headers.etag).not.toBe(first.headers.etag)
    expect((await call('HEAD', '/f')).headers.etag).toBe(second.headers.etag)
    expect((await put('three', { 'if-match': first.headers.etag })).statusCode).toBe(412)
    expect(await readdir(workspace.root)).toEqual(['f'])
  })

  test('of several at once over the same file lets one through', async () => {
    await call('PUT', '/f', { payload: 'start' })
    const { etag } = (await call('HEAD', '/f')).headers
    const replies = await Promise.all(
      Array.from({ length: 8 }, (_, n) =>
        call('PUT', '/f', { payload: `${n}`, headers: { 'if-match': etag } }),
      ),
    )
    expect(replies.map(({ statusCode }) => statusCode).sort()).toEqual([200, ...Array(7).fill(412)])
    const fresh = await Promise.all(
      Array.from({ length: 8 }, (_, n) =>
        call('PUT', '/g', { payload: `${n}`, headers: { 'if-none-match': '*' } }),
      ),
    )
    expect(fresh.filter(({ statusCode }) => statusCode === 200)).toHaveLength(1)
  })

  test('takes permission bits, and none that are special', async () => {
    await call('PUT', '/f?mode=0755', { payload: 'x' })
    expect((await lstat(at('f'))).mode & 0o7777).toBe(0o755)
    for (const mode of ['4755', '1777', '99', 'rwx', '0o755', '-755'])
      expect((await call('PUT', `/f?mode=${mode}`, { payload: 'x' })).json().details[0].path).toBe('mode')
  })

  test('is bounded by the disk of the session', async () => {
    const declared = await call('PUT', '/f', {
      payload: 'x',
      headers: { 'content-length': `${MAX_BYTES + 1}` },
    })
    expect(codeOf(declared)).toEqual([413, 'payload_too_large'])
    const body = new ReadableStream({
      pull: (controller) => controller.enqueue(Buffer.alloc(64 * 1024)),
    })
    const reply = await fetch(`${origin}${base}/f`, {
      method: 'PUT',
      headers,
      body,
      duplex: 'half',
    } as RequestInit)
    expect(reply.status).toBe(413)
    expect(await readdir(workspace.root)).toEqual([])
  })

  test('that breaks off leaves nothing, and until its end nobody sees anything of it', async () => {
    const { port } = app.server.address() as { port: number }
    const request = httpRequest({ port, method: 'PUT', path: `${base}/new/f`, headers })
    request.on('error', () => {}).write('half')
    await expect.poll(() => readdir(workspace.root)).toEqual([expect.stringMatching(/^\.ash-write-/)])
    expect(codeOf(await call('GET', '/new/f'))).toEqual([404, 'file_not_found'])
    request.destroy()
    await expect.poll(() => readdir(workspace.root)).toEqual([])
  })
})

describe('a form', () => {
  const form = (...files: [name: string, content: string][]) => {
    const body = new FormData()
    for (const [name, content] of files) body.append('files', new Blob([content]), name)
    return body
  }
  const upload = async (body: FormData | string, query = '', extra = {}) => {
    const reply = await fetch(`${origin}${base}/upload${query}`, {
      method: 'POST',
      headers: { ...headers, ...extra },
      body,
    })
    return { status: reply.status, json: (await reply.json()) as Record<string, unknown> }
  }

  test('brings several files into a folder', async () => {
    const big = 'x'.repeat(500_000)
    const reply = await upload(form(['a.txt', 'one'], ['ü b.txt', big], ['empty', '']), '?path=in/deep/')
    expect(reply).toEqual({
      status: 200,
      json: {
        files: [
          { path: 'in/deep/a.txt', size: 3 },
          { path: 'in/deep/ü b.txt', size: 500_000 },
          { path: 'in/deep/empty', size: 0 },
        ],
      },
    })
    expect(await readFile(at('in/deep/ü b.txt'), 'utf8')).toBe(big)
    expect(await readdir(workspace.root)).toEqual(['in'])
    expect(writers).toEqual(['default'])
  })

  test.each(['../x', 'a/b', '/etc/passwd', 'a\\b', '..', '.', 'x'.repeat(256)])(
    'with a file called %j is refused, and none of it is written',
    async (name) => {
      const reply = await upload(form(['good.txt', 'x'], [name, 'evil']))
      expect([reply.status, reply.json.code]).toEqual([400, 'validation_failed'])
      expect(await readdir(workspace.root)).toEqual([])
      await workspace.expectOutsideUntouched()
    },
  )

  test('with a file that is too long, or with too many, writes none', async () => {
    const long = await upload(form(['a', 'x'], ['b', 'x'.repeat(MAX_BYTES + 1)]))
    expect([long.status, long.json.code]).toEqual([413, 'payload_too_large'])
    const many = await upload(form(...Array.from({ length: 501 }, (_, n): [string, string] => [`f${n}`, ''])))
    expect([many.status, many.json.code]).toEqual([413, 'payload_too_large'])
    expect(await readdir(workspace.root)).toEqual([])
  })

  test('without files, with a field, broken off, or no form at all is refused', async () => {
    const field = new FormData()
    field.append('note', 'text')
    expect((await upload(field)).json.code).toMatch(/validation_failed|payload_too_large/)
    expect((await upload(new FormData())).status).toBe(400)
    expect((await upload('{}', '', { 'content-type': 'application/json' })).json.code).toBe(
      'unsupported_media_type',
    )
    const type = { 'content-type': 'multipart/form-data; boundary=b' }
    const broken = '--b\r\ncontent-disposition: form-data; name="f"; filename="f"\r\n\r\nhalf'
    expect((await upload(broken, '', type)).status).toBe(400)
    expect((await upload(form(['f', 'x']), '?path=../x')).json.code).toBe('validation_failed')
    expect(await readdir(workspace.root)).toEqual([])
  })
})

describe('changes', () => {
  test('folders, moves, copies and modes answer with what is then there', async () => {
    expect((await post('mkdir', { path: 'a/b', parents: true })).json()).toMatchObject({
      path: 'a/b',
      type: 'directory',
    })
    await writeFile(at('a/f'), 'text')
    expect((await post('move', { from: 'a/f', to: 'a/b/g' })).json()).toMatchObject({
      path: 'a/b/g',
      size: 4,
    })
    expect((await post('copy', { from: 'a', to: 'c' })).json()).toMatchObject({
      path: 'c',
      type: 'directory',
    })
    expect((await post('chmod', { path: 'c/b/g', mode: '600' })).json().mode).toBe('0600')
    expect(await readFile(at('c/b/g'), 'utf8')).toBe('text')
    expect(writers).toHaveLength(4)
    expect(codeOf(await post('mkdir', { path: 'a' }))).toEqual([409, 'file_exists'])
    expect(codeOf(await post('copy', { from: 'a', to: 'c' }))).toEqual([409, 'file_exists'])
    expect(codeOf(await post('move', { from: 'none', to: 'x' }))).toEqual([404, 'file_not_found'])
    for (const [action, body] of [
      ['chmod', { path: 'c/b/g', mode: '4755' }],
      ['mkdir', { path: '../x' }],
      ['move', { from: 'a', to: '/etc/x' }],
      ['copy', { from: 'a\0', to: 'x' }],
      ['links', { path: 'a', expiresIn: 8 * 24 * 3600 }],
      ['links', { path: 'a', method: 'DELETE' }],
    ] as const)
      expect(codeOf(await post(action, body))).toEqual([400, 'validation_failed'])
  })

  test('a folder that is not empty is deleted only recursively', async () => {
    await mkdir(at('d/e'), { recursive: true })
    expect(codeOf(await call('DELETE', '/d?recursive=false'))).toEqual([409, 'file_exists'])
    expect((await call('DELETE', '/d/e?recursive=false')).statusCode).toBe(200)
    await mkdir(at('d/e'))
    expect((await call('DELETE', '/d?recursive=true')).statusCode).toBe(200)
    expect(await readdir(workspace.root)).toEqual([])
  })

  test('a session of somebody else is not there', async () => {
    for (const action of ['mkdir', 'links']) {
      const url = `/api/sessions/${OTHER}/files/${action}`
      expect((await app.inject({ method: 'POST', url, headers, payload: { path: 'x' } })).statusCode).toBe(
        404,
      )
    }
  })
})

describe('a signed link', () => {
  const make = async (body: object) => {
    const { url, expiresAt } = (await post('links', body)).json()
    expect(Date.parse(expiresAt)).toBeGreaterThan(Date.now())
    return url as string
  }
  const path = (url: string) => new URL(url).pathname

  test('reads one file without a key, and a range of it', async () => {
    await writeFile(at('ü.html'), '<script>')
    const url = path(await make({ path: 'ü.html', expiresIn: 60 }))
    const reply = await app.inject({ url })
    expect([reply.statusCode, reply.body]).toEqual([200, '<script>'])
    expect(reply.headers).toMatchObject({
      'content-disposition': expect.stringMatching(/^attachment/),
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
    })
    expect((await app.inject({ url, headers: { range: 'bytes=1-3' } })).body).toBe('scr')
    expect((await app.inject({ url, method: 'HEAD' })).headers['content-length']).toBe('8')
    expect((await app.inject({ url, method: 'PUT', payload: 'x' })).statusCode).toBe(403)
    expect(await readFile(at('ü.html'), 'utf8')).toBe('<script>')
  })

  test('writes one file without a key', async () => {
    const url = path(await make({ path: 'in/f', method: 'PUT' }))
    const reply = await app.inject({ url, method: 'PUT', payload: 'text' })
    expect(reply.json()).toEqual({ path: 'in/f', size: 4 })
    expect(writers).toEqual(['default'])
    expect((await app.inject({ url })).statusCode).toBe(403)
  })

  test('of the longest path works, and follows no link', async () => {
    const long = Array(4).fill('ü'.repeat(127)).join('/')
    await call('PUT', `/${encodeURI(long)}`, { payload: 'deep' })
    expect((await app.inject({ url: path(await make({ path: long })) })).body).toBe('deep')
    await symlink(`${workspace.outside}/secret.txt`, at('link'))
    expect(codeOf(await app.inject({ url: path(await make({ path: 'link' })) }))).toEqual([
      400,
      'path_invalid',
    ])
  })

  test('that is old, changed or of another server is refused', async () => {
    const claims = { tenantId: 'default', sessionId: ID, path: 'f', method: 'GET' as const }
    await writeFile(at('f'), 'text')
    const get = async (token: string) => (await app.inject({ url: `/files/signed/${token}` })).statusCode
    const good = signLink(linkKey, { ...claims, expiresAtMs: Date.now() + 1000 })
    expect(await get(good)).toBe(200)
    expect(await get(signLink(linkKey, { ...claims, expiresAtMs: Date.now() - 1 }))).toBe(403)
    expect(await get(signLink(Buffer.alloc(32), { ...claims, expiresAtMs: Date.now() + 1000 }))).toBe(403)
    expect(await get(`A${good.slice(1)}`)).toBe(403)
    expect(await get('x')).toBe(403)
    hasEnded = true
    expect(await get(good)).toBe(409)
  })
})

describe('a watch', () => {
  const open = async (query = '') => {
    const leaving = new AbortController()
    const reply = await fetch(`${origin}${base}?watch=true${query}`, { headers, signal: leaving.signal })
    const frames = parseSSE(reply.body as unknown as AsyncIterable<Uint8Array>)
    const next = async () => {
      const { value } = await frames.next()
      return value && { event: value.event, ...JSON.parse(value.data) }
    }
    return { status: reply.status, next, leave: () => leaving.abort() }
  }

  test('tells what is made, changed and deleted, below a folder', async () => {
    await mkdir(at('in'))
    await writeFile(at('in/old'), 'x')
    const { next, leave } = await open('&path=in')
    expect(await next()).toEqual({ event: 'ready', entries: 1, truncated: false, limit: 20_000 })
    await writeFile(at('outside-of-it'), '')
    await writeFile(at('in/new'), 'abc')
    expect(await next()).toEqual({ event: 'created', type: 'created', path: 'in/new', size: 3 })
    await writeFile(at('in/old'), 'xy')
    expect(await next()).toEqual({ event: 'changed', type: 'changed', path: 'in/old', size: 2 })
    await rm(at('in'), { recursive: true })
    expect(await next()).toMatchObject({ event: 'deleted', path: 'in/new' })
    expect(await next()).toMatchObject({ event: 'deleted', path: 'in/old' })
    leave()
  })

  test('of what leads out or is not there is refused', async () => {
    await symlink(workspace.outside, at('link'))
    expect((await open('&path=link')).status).toBe(400)
    expect((await open('&path=none')).status).toBe(404)
    expect((await open('&path=../x')).status).toBe(400)
  })

  test('ends with the session, and says so', async () => {
    const { next } = await open()
    expect((await next()).event).toBe('ready')
    hasEnded = true
    expect(await next()).toMatchObject({ event: 'error', code: 'session_ended' })
    expect(await next()).toBeUndefined()
  })

  test('is one of at most 20, and its place is free when its client is gone', async () => {
    const watches = await Promise.all(Array.from({ length: 20 }, () => open()))
    for (const { next } of watches) expect((await next()).event).toBe('ready')
    expect((await open()).status).toBe(429)
    watches[0]?.leave()
    await expect.poll(async () => (await open()).status, { timeout: 10_000 }).toBe(200)
    for (const { leave } of watches) leave()
  })
})
