import { join } from 'node:path'
import { Kysely, sql } from 'kysely'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { readRunSettings } from '../sessions/run-settings.ts'
import { fenceOf, getSession, insertSession, moveSession } from '../sessions/session-queries.ts'
import { sessionRow } from '../sessions/testing/session-rows.ts'
import { up as init } from './migrations/0001_init.ts'
import { up as turnRequests } from './migrations/0002_turn_requests.ts'
import { up as checkpoints } from './migrations/0003_checkpoints.ts'
import { up as runningCode } from './migrations/0004_running_code.ts'
import { up as externalIds } from './migrations/0005_external_ids.ts'
import type { Db } from './open-db.ts'
import { ThreadedSqliteDialect } from './sqlite-dialect.ts'
import type { Tables } from './tables.ts'
import { type TestDb, testDatabases } from './testing/test-databases.ts'

for (const database of testDatabases) {
  describe(`a database of an earlier release, in ${database.kind}`, () => {
    let opened: TestDb
    beforeEach(async () => {
      opened = await database.open()
    })
    afterEach(() => opened.close())

    test('keeps its sessions, which gain what is new at its default', async () => {
      await withEmpty(opened, async (db) => {
        for (const up of [init, turnRequests, checkpoints]) await up(db as Kysely<unknown>)
        const { external_id, template, mode, agent_id, run_settings, idle_timeout_ms, lifetime_ms, ...old } =
          sessionRow({ agent_name: 'analyst', agent_version: 7, status: 'paused' })
        await db
          .insertInto('sessions')
          .values(old as Tables['sessions'])
          .execute()
        for (const up of [runningCode, externalIds]) await up(db as Kysely<unknown>)
        const row = await getSession(db, 'default', old.id)
        const added = { external_id, template, mode, agent_id, run_settings, idle_timeout_ms, lifetime_ms }
        expect(row).toEqual({ ...old, ...added })
        expect(readRunSettings(row).languages).toHaveLength(3)
        expect(await insertSession(db, sessionRow({ agent_name: null, agent_version: null }))).toBe(true)
        await moveSession(db, fenceOf(row), 'ended')
      })
    })
  })
}

/** In a schema of its own, or in another file: those that are opened have everything already. */
async function withEmpty({ db, kind, dataDir }: TestDb, work: (db: Db) => Promise<void>): Promise<void> {
  if (kind === 'postgres')
    return db.transaction().execute(async (transaction) => {
      await sql`create schema earlier`.execute(transaction)
      await sql`set local search_path to earlier`.execute(transaction)
      await work(transaction)
    })
  const path = join(dataDir, 'earlier.db')
  const earlier = new Kysely<Tables>({
    dialect: new ThreadedSqliteDialect({ path, sync: 'normal', busyTimeoutMs: 1_000 }),
  })
  try {
    await work(earlier)
  } finally {
    await earlier.destroy()
  }
}
