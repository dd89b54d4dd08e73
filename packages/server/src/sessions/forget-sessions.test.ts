import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { insertExecution } from '../executions/execution-queries.ts'
import { executionRow } from '../executions/testing/execution-rows.ts'
import { EventLog } from './event-log.ts'
import { forgetSessions } from './forget-sessions.ts'
import { fenceOf, insertSession, type SessionRow } from './session-queries.ts'
import { sessionRow } from './testing/session-rows.ts'

const DAY_MS = 86_400_000
const NOW = 100 * DAY_MS

for (const database of testDatabases)
  describe(database.kind, () => {
    let opened: TestDb
    beforeEach(async () => {
      opened = await database.open()
    })
    afterEach(() => opened.close())

    const OLD = { mode: 'ephemeral', status: 'ended', ended_at: 69 * DAY_MS } as const
    const insert = async (change: Partial<SessionRow>) => {
      const row = sessionRow(change)
      expect(await insertSession(opened.db, row)).toBe(true)
      return row
    }
    const forget = () =>
      forgetSessions(
        { db: opened.db, dataDir: opened.dataDir, hostId: 'host-a', retention: { sessionDays: 30 } },
        { now: NOW },
      )
    const idsIn = async (table: 'sessions' | 'executions') =>
      (await opened.db.selectFrom(table).select('id').execute()).map(({ id }) => id).sort()

    test('sessions for one run go when their time is over, with all that is theirs, and no others', async () => {
      const old = await insert(OLD)
      const kept = [
        await insert({ ...OLD, ended_at: 71 * DAY_MS }),
        await insert({ ...OLD, mode: 'persistent' }),
        await insert({ ...OLD, status: 'active', ended_at: null }),
        await insert({ ...OLD, owner_id: 'host-b' }),
        await insert({ ...OLD, host_uid: 500_000 }),
      ]
      const parent = await insert(OLD)
      kept.push(parent, await insert({ parent_session_id: parent.id, fork_seq: 1 }))
      const execution = executionRow({ session_id: old.id, finished_at: 1 })
      await insertExecution(opened.db, execution)
      const folder = join(opened.dataDir, 'artifacts', 'default')
      await mkdir(join(folder, execution.id), { recursive: true })
      await writeFile(join(folder, execution.id, '0'), 'x')
      const log = new EventLog(opened.db, fenceOf(old), { seq: 0, totalChars: 0, forkSeq: 0 })
      for (let entry = 0; entry < 1_100; entry++) void log.write('output', execution.id, '{}')
      await log.flushed()
      expect(await forget()).toBe(1)
      expect(await idsIn('sessions')).toEqual(kept.map(({ id }) => id).sort())
      expect(await idsIn('executions')).toEqual([])
      expect(await readdir(folder)).toEqual([])
      const left = await opened.db.selectFrom('session_events').select('seq').execute()
      expect(left).toEqual([])
      expect(await forget()).toBe(0)
    })

    test('however many there are', async () => {
      for (let count = 0; count < 120; count++) await insert(OLD)
      expect(await forget()).toBe(120)
    })
  })
