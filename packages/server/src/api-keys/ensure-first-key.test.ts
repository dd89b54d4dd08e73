import { createHash } from 'node:crypto'
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { findTenantByKeyHash } from './api-key-queries.ts'
import { ensureFirstKey } from './ensure-first-key.ts'

for (const database of testDatabases) {
  describe(`ensureFirstKey on ${database.kind}`, () => {
    let opened: TestDb
    let logged: string
    const note = (...parts: unknown[]) => {
      logged += `${JSON.stringify(parts)}\n`
    }
    const log = { info: note, warn: note }
    beforeAll(async () => {
      opened = await database.open()
    })
    afterAll(() => opened.close())
    beforeEach(async () => {
      await opened.db.deleteFrom('api_keys').execute()
      await rm(path(), { force: true })
      logged = ''
    })

    const ensure = (extra: { apiKey?: string; dataDir?: string } = {}) =>
      ensureFirstKey({ db: opened.db, dataDir: opened.dataDir, log, ...extra })
    const path = () => join(opened.dataDir, 'api-key')
    const readKey = async () => (await readFile(path(), 'utf8')).trim()
    const tenantOf = (key: string) =>
      findTenantByKeyHash(opened.db, createHash('sha256').update(key).digest('hex'))
    const countKeys = async () => (await opened.db.selectFrom('api_keys').selectAll().execute()).length

    test('makes one key: text in a private file, hash in the database, neither in the log', async () => {
      await ensure()
      const key = await readKey()
      expect(key).toMatch(/^ash_[A-Za-z0-9_-]{32}$/)
      expect((await stat(path())).mode & 0o777).toBe(0o600)
      expect(await tenantOf(key)).toBe('default')
      expect(JSON.stringify(await opened.db.selectFrom('api_keys').selectAll().execute())).not.toContain(key)
      expect(logged).toContain(path())
      expect(logged).not.toContain(key)
    })

    test('the next start keeps the key', async () => {
      await ensure()
      const key = await readKey()
      await ensure()
      expect(await readKey()).toBe(key)
      expect(await countKeys()).toBe(1)
    })

    test('many at once make one key that works', async () => {
      await Promise.all(Array.from({ length: 10 }, () => ensure()))
      expect(await tenantOf(await readKey())).toBe('default')
      expect(await countKeys()).toBe(1)
      expect((await readdir(opened.dataDir)).filter((name) => name.startsWith('api-key'))).toEqual([
        'api-key',
      ])
    })

    test('a second data folder on the same database is not left with a key that opens nothing', async () => {
      const other = join(opened.dataDir, 'other')
      await mkdir(other)
      await Promise.all([ensure(), ensure({ dataDir: other })])
      const files = await Promise.all([opened.dataDir, other].map((dir) => readdir(dir)))
      expect(files.flat().filter((name) => name.startsWith('api-key'))).toEqual(['api-key'])
      expect(await countKeys()).toBe(1)
    })

    test('a file written just before a crash is taken up', async () => {
      const key = `ash_${'k'.repeat(32)}`
      await writeFile(path(), `${key}\n`, { mode: 0o600 })
      await ensure()
      expect(await tenantOf(key)).toBe('default')
    })

    test('a damaged file without a key in the database is replaced', async () => {
      await writeFile(path(), '')
      await ensure()
      expect(await tenantOf(await readKey())).toBe('default')
      expect((await stat(path())).mode & 0o777).toBe(0o600)
    })

    test('a lost file is only mentioned', async () => {
      await ensure()
      await rm(path())
      logged = ''
      await ensure()
      expect(logged).toMatch(/gone/)
      await expect(readKey()).rejects.toThrow('ENOENT')
      expect(await countKeys()).toBe(1)
    })

    test('an operator who set ASH_API_KEY gets no other', async () => {
      await ensure({ apiKey: 'mine' })
      expect(await countKeys()).toBe(0)
      await expect(readKey()).rejects.toThrow('ENOENT')
    })
  })
}
