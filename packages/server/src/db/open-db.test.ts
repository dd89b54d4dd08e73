import { mkdtemp, readdir, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inspect } from 'node:util'
import { sql } from 'kysely'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { openDb } from './open-db.ts'
import { openPostgresPool } from './postgres-pool.ts'
import { type TestDb, testDatabases } from './testing/test-databases.ts'

const key = (id: string) => ({ id, tenant_id: 't', key_hash: `hash ${id}`, label: '', created_at: 1 })

for (const database of testDatabases) {
  describe(database.kind, () => {
    let test1: TestDb
    beforeEach(async () => {
      test1 = await database.open()
    })
    afterEach(() => test1.close())

    test('rows come back as they were written', async () => {
      const row = { ...key('ünï'), label: 'a\u2028"\\\n', created_at: Number.MAX_SAFE_INTEGER }
      await test1.db.insertInto('api_keys').values(row).execute()
      expect(await test1.db.selectFrom('api_keys').selectAll().execute()).toEqual([row])
    })

    test('a write that was awaited is seen by the next read', async () => {
      for (let n = 1; n <= 50; n++) {
        await test1.db
          .insertInto('api_keys')
          .values(key(`k${n}`))
          .execute()
        const { count } = await test1.db
          .selectFrom('api_keys')
          .select((eb) => eb.fn.countAll<number>().as('count'))
          .executeTakeFirstOrThrow()
        expect(count).toBe(n)
      }
    })

    test('the number of rows changed is told', async () => {
      await test1.db
        .insertInto('api_keys')
        .values([key('a'), key('b')])
        .execute()
      const updated = await test1.db.updateTable('api_keys').set({ label: 'x' }).executeTakeFirst()
      const deleted = await test1.db.deleteFrom('api_keys').where('id', '=', 'none').executeTakeFirst()
      expect([updated.numUpdatedRows, deleted.numDeletedRows]).toEqual([2n, 0n])
    })

    test('returning gives the rows', async () => {
      const row = await test1.db.insertInto('api_keys').values(key('a')).returningAll().executeTakeFirst()
      expect(row).toEqual(key('a'))
    })

    test('a transaction that throws changes nothing', async () => {
      const failing = test1.db.transaction().execute(async (transaction) => {
        await transaction.insertInto('api_keys').values(key('a')).execute()
        expect(await transaction.selectFrom('api_keys').select('id').execute()).toHaveLength(1)
        throw new Error('stop')
      })
      await expect(failing).rejects.toThrow('stop')
      expect(await test1.db.selectFrom('api_keys').select('id').execute()).toEqual([])
    })

    test('others do not see a transaction before its end, nor write into it', async () => {
      const inside = Promise.withResolvers<void>()
      const release = Promise.withResolvers<void>()
      const long = test1.db.transaction().execute(async (transaction) => {
        await transaction.insertInto('api_keys').values(key('inside')).execute()
        inside.resolve()
        await release.promise
        throw new Error('rolled back')
      })
      await inside.promise
      expect(await test1.db.selectFrom('api_keys').select('id').execute()).toEqual([])
      const other = test1.db.insertInto('api_keys').values(key('other')).execute()
      release.resolve()
      await expect(long).rejects.toThrow('rolled back')
      await other
      expect(await test1.db.selectFrom('api_keys').select('id').execute()).toEqual([{ id: 'other' }])
    })

    test('many writers at once lose nothing', async () => {
      await test1.db.insertInto('api_keys').values(key('counter')).execute()
      const increment = () =>
        test1.db.transaction().execute(async (transaction) => {
          const { created_at } = await transaction
            .updateTable('api_keys')
            .set((eb) => ({ created_at: eb('created_at', '+', 1) }))
            .where('id', '=', 'counter')
            .returning('created_at')
            .executeTakeFirstOrThrow()
          return created_at
        })
      const inserts = Array.from({ length: 50 }, (_, n) =>
        test1.db
          .insertInto('api_keys')
          .values(key(`k${n}`))
          .execute(),
      )
      const counts = await Promise.all(Array.from({ length: 50 }, increment))
      await Promise.all(inserts)
      expect(new Set(counts).size).toBe(50)
      expect(Math.max(...counts)).toBe(51)
      expect(await test1.db.selectFrom('api_keys').select('id').execute()).toHaveLength(51)
    })

    test('a broken constraint is an error that names it, and the next write works', async () => {
      await test1.db.insertInto('api_keys').values(key('a')).execute()
      const again = test1.db.insertInto('api_keys').values(key('a')).execute()
      await expect(again).rejects.toThrow(/api_keys/)
      await test1.db.insertInto('api_keys').values(key('b')).execute()
    })

    test('foreign keys are enforced', async () => {
      const orphan = { tenant_id: 't', session_id: 'none', seq: 1, type: 'log', data: '{}', created_at: 1 }
      await expect(test1.db.insertInto('session_events').values(orphan).execute()).rejects.toThrow(
        /foreign key/i,
      )
    })

    test('several openings at once migrate once, and data survives them', async () => {
      await test1.db.insertInto('api_keys').values(key('kept')).execute()
      const again = await Promise.all([test1.reopen(), test1.reopen(), test1.reopen()])
      for (const opened of again) {
        expect(await opened.db.selectFrom('api_keys').select('id').execute()).toEqual([{ id: 'kept' }])
        await opened.close()
      }
    })

    test('a closed database refuses work', async () => {
      const opened = await test1.reopen()
      await opened.close()
      await expect(opened.db.selectFrom('agents').selectAll().execute()).rejects.toThrow()
      await expect(opened.db.insertInto('api_keys').values(key('late')).execute()).rejects.toThrow()
    })

    test('every table has its tenant, save the one that names the database', async () => {
      for (const { name } of await test1.db.introspection.getTables()) {
        if (name === 'installation') continue
        const { rows } = await sql<Record<string, unknown>>`select tenant_id from ${sql.table(name)}`.execute(
          test1.db,
        )
        expect(rows).toEqual([])
      }
    })
  })
}

describe('sqlite files', () => {
  let dataDir: string
  beforeEach(async () => {
    dataDir = join(await mkdtemp(join(tmpdir(), 'ash-open-')), 'made', 'for me')
  })
  afterEach(() => rm(join(dataDir, '..', '..'), { recursive: true, force: true }))

  test('only the owner can read the database, its log included', async () => {
    const { db, close } = await openDb({ dataDir, sqliteSync: 'full' })
    await db.insertInto('api_keys').values(key('a')).execute()
    for (const name of await readdir(dataDir)) {
      expect([name, (await stat(join(dataDir, name))).mode & 0o777]).toEqual([name, 0o600])
    }
    await close()
    expect(await readdir(dataDir)).toEqual(['ash.db'])
  })

  test('a folder that cannot hold a database is an error, not a hang', async () => {
    await expect(openDb({ dataDir: '/dev/null/ash', sqliteSync: 'normal' })).rejects.toThrow(/ENOTDIR/)
  })
})

describe('openPostgresPool', () => {
  const problem = (url: string) => openPostgresPool(url, 2).catch((reason: unknown) => reason)

  test('an unreachable server is named without its password', async () => {
    const error = await problem('postgres://ash:hunter2@127.0.0.1:1/ash')
    expect(String(error)).toMatch(/Cannot use the database ash at 127\.0\.0\.1:1 as ash: .*ECONNREFUSED/)
    expect(inspect(error, { depth: 10, showHidden: true })).not.toContain('hunter2')
  })

  test('a database that does not exist is not waited for', async () => {
    const postgres = await testDatabases.find(({ kind }) => kind === 'postgres')?.open()
    const error = await problem(`${postgres?.databaseUrl}_none`)
    expect(String(error)).toMatch(/database "test_\d+_none" does not exist/)
    await postgres?.close()
  })
})
