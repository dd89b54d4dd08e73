import { createHash } from 'node:crypto'
import { IncomingMessage } from 'node:http'
import { Socket } from 'node:net'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { insertApiKey } from '../api-keys/api-key-queries.ts'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { type AccessDeps, admit } from './preview-access.ts'
import { signPreview } from './preview-links.ts'

const base = new URL('http://localhost:4101')
const target = { sessionId: '0b0e6f6e-6a1f-4a53-9c8e-5f2c1a7d9e10', port: 3000 }
const own = `http://3000-${target.sessionId}.localhost:4101`
const linkKey = Buffer.alloc(32, 7)
const claims = { ...target, tenantId: 'acme', mayWake: true, expiresAtMs: Date.now() + 60_000 }
const token = signPreview(linkKey, claims)

let opened: TestDb
let deps: AccessDeps
beforeAll(async () => {
  opened = await openSqliteTestDb()
  const key_hash = createHash('sha256').update('key-of-acme').digest('hex')
  await insertApiKey(opened.db, { id: '1', tenant_id: 'acme', key_hash, label: '', created_at: 1 })
  deps = { db: opened.db, apiKey: 'first', linkKey, base }
})
afterAll(() => opened.close())

function ask(url: string, headers: Record<string, string> = {}, method = 'GET') {
  const request = Object.assign(new IncomingMessage(new Socket()), { url, headers, method })
  return admit(deps, request, target)
}
const cookie = `ash_preview=${token}`
const status = (code: number) => ({ status: code })

describe('a key', () => {
  test.each([
    ['first', 'default'],
    ['key-of-acme', 'acme'],
  ])('%s is that of %s, and wakes nobody', async (key, tenantId) => {
    const admitted = await ask('/x', { authorization: `Bearer ${key}` })
    expect(admitted).toEqual({ tenantId, mayWake: false, path: '/x', hasKey: true })
  })

  test('that is not known counts as the program’s own', async () => {
    await expect(ask('/', { authorization: 'Bearer other' })).rejects.toMatchObject(status(401))
    const admitted = await ask('/', { authorization: 'Bearer other', cookie })
    expect(admitted).toMatchObject({ tenantId: 'acme', hasKey: false })
    expect(await ask('/', { authorization: 'Bearer first', cookie })).toMatchObject({ hasKey: true })
  })
})

describe('a link', () => {
  test.each([
    [`/?ash_token=${token}`, '/'],
    [`/a?ash_token=${token}&b=%2F`, '/a?b=%2F'],
    [`/a?b=?c&ash_token=${token}`, '/a?b=?c'],
    [`//evil.example/?ash_token=${token}`, '//evil.example/'],
    [`/?ash_token=${token}&ash_token=x`, '/'],
  ])('%s leads to %s', async (url, path) => {
    const admitted = await ask(url)
    expect(admitted).toMatchObject({ tenantId: 'acme', mayWake: true, path })
    expect(admitted.cookie).toMatch(/^ash_preview=[^;]+; Path=\/; HttpOnly; SameSite=Lax; Max-Age=(59|60)$/)
  })

  test('over https the cookie is bound to its host, and goes nowhere else', async () => {
    const admitted = await ask(`/?ash_token=${token}`, { 'x-forwarded-proto': 'https' })
    expect(admitted.cookie).toMatch(/^__Host-ash_preview=[^;]+; Path=\/;.*; Secure$/)
    expect(admitted.cookie).not.toContain('Domain')
  })

  test('of a program that does not read a page is enough for the one request', async () => {
    expect(await ask(`/?ash_token=${token}`, {}, 'POST')).not.toHaveProperty('cookie')
    expect(await ask(`/?ash_token=${token}`, { upgrade: 'websocket' })).not.toHaveProperty('cookie')
  })

  test('is looked at before anything else', async () => {
    await expect(ask('/?ash_token=x', { cookie })).rejects.toMatchObject({ code: 'forbidden' })
  })
})

describe('a cookie', () => {
  test('opens its preview, also beside one that another page has set', async () => {
    for (const given of [cookie, `a=1; __Host-${cookie}`, `ash_preview=junk; ${cookie}`])
      expect(await ask('/', { cookie: given })).toMatchObject({ tenantId: 'acme', mayWake: true })
    const other = signPreview(linkKey, { ...claims, port: 3001 })
    for (const given of ['', 'ash_preview=junk', `ash_preview=${other}`, `not_${cookie}`])
      await expect(ask('/', { cookie: given })).rejects.toMatchObject(status(401))
  })

  test.each([
    [{}],
    [{ origin: own }],
    [{ origin: `http://8080-${target.sessionId}.localhost:4101` }],
    [{ 'sec-fetch-site': 'same-origin', origin: 'null' }],
    [{ 'sec-fetch-site': 'none' }],
    [{ 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' }],
  ])('is taken with %j', async (headers) => {
    expect(await ask('/', { cookie, ...headers })).toMatchObject({ tenantId: 'acme' })
  })

  test.each([
    [{ origin: 'null' }, 'GET'],
    [{ origin: 'https://evil.example' }, 'GET'],
    [{ origin: own.replace('3000-0', '3000-1') }, 'POST'],
    [{ 'sec-fetch-site': 'same-site' }, 'GET'],
    [{ 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' }, 'GET'],
    [
      { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate', origin: 'https://evil.example' },
      'POST',
    ],
  ])('is not taken with %j of a %s', async (headers, method) => {
    await expect(ask('/', { cookie, ...headers }, method)).rejects.toMatchObject(status(403))
  })
})

test.each(['http://evil.example/', '*', ''])('%s is not a path', async (url) => {
  await expect(ask(url, { cookie })).rejects.toMatchObject(status(400))
})
