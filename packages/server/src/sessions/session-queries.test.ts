import { canFollow, SESSION_STATUSES } from '@ash-ai/shared'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { executionRow } from '../executions/testing/execution-rows.ts'
import {
  fenceOf,
  findOpenSessionOf,
  freeUid,
  getSession,
  insertSession,
  listOwnedIds,
  listSessions,
  listUnusedEphemeral,
  moveSession,
  reclaimSessions,
  updateSession,
} from './session-queries.ts'
import { sessionRow } from './testing/session-rows.ts'

for (const database of testDatabases) {
  describe(`sessions in ${database.kind}`, () => {
    let test_: TestDb
    beforeEach(async () => {
      test_ = await database.open()
    })
    afterEach(() => test_.close())
    const insert = async (change = {}) => {
      const row = sessionRow(change)
      expect(await insertSession(test_.db, row)).toBe(true)
      return row
    }

    test('a row comes back as it was written', async () => {
      const row = await insert({ host_uid: 200_017, config: '{"model":"m"}' })
      expect(await getSession(test_.db, 'default', row.id)).toMatchObject(row)
    })

    test('another tenant does not see, list, move or change it', async () => {
      const row = await insert({ status: 'active' })
      const stranger = { ...fenceOf(row), tenantId: 'other' }
      await expect(getSession(test_.db, 'other', row.id)).rejects.toMatchObject({ code: 'session_not_found' })
      expect((await listSessions(test_.db, 'other', { limit: 10 })).rows).toEqual([])
      await expect(moveSession(test_.db, stranger, 'paused')).rejects.toMatchObject({
        code: 'session_conflict',
      })
      await updateSession(test_.db, stranger, { sdk_session_id: 'x', last_active_at: 1 })
      await freeUid(test_.db, stranger)
      expect(await getSession(test_.db, 'default', row.id)).toMatchObject(row)
    })

    test('a uid belongs to one session of a host, and is free when it is given back', async () => {
      const row = await insert({ host_uid: 7 })
      expect(await insertSession(test_.db, sessionRow({ host_uid: 7 }))).toBe(false)
      expect(await insertSession(test_.db, sessionRow({ host_uid: 7, owner_id: 'host-b' }))).toBe(true)
      await freeUid(test_.db, fenceOf(row))
      expect(await insertSession(test_.db, sessionRow({ host_uid: 7 }))).toBe(true)
    })

    test('a status follows another only where the table of states allows it', async () => {
      for (const from of SESSION_STATUSES) {
        for (const to of SESSION_STATUSES) {
          const row = await insert({ status: from })
          const moved = await moveSession(test_.db, fenceOf(row), to).then(
            () => true,
            () => false,
          )
          expect({ from, to, moved }).toEqual({ from, to, moved: canFollow(from, to) })
        }
      }
    })

    test('of several moves at the same time one wins', async () => {
      const row = await insert({ status: 'paused' })
      const moves = await Promise.allSettled(
        Array.from({ length: 8 }, () => moveSession(test_.db, fenceOf(row), 'starting', {}, ['paused'])),
      )
      expect(moves.filter((move) => move.status === 'fulfilled')).toHaveLength(1)
    })

    test('a host that lost a session to a later epoch cannot write to it', async () => {
      const row = await insert({ status: 'active' })
      const [reclaimed] = await reclaimSessions(test_.db, 'host-a')
      expect(reclaimed).toMatchObject({ id: row.id, sandbox_id: null, epoch: 2 })
      await expect(moveSession(test_.db, fenceOf(row), 'active')).rejects.toMatchObject({
        code: 'session_conflict',
      })
      await updateSession(test_.db, fenceOf(row), { sdk_session_id: 'x' })
      expect((await getSession(test_.db, 'default', row.id)).sdk_session_id).toBeNull()
    })

    test('a restart takes back live sessions of its own host and no others', async () => {
      const mine = [await insert({ status: 'active' }), await insert({ status: 'starting' })]
      await insert({ status: 'active', owner_id: 'host-b' })
      await insert({ status: 'ended' })
      const error = await insert({ status: 'error' })
      const reclaimed = await reclaimSessions(test_.db, 'host-a')
      expect(reclaimed.map(({ id }) => id).sort()).toEqual(mine.map(({ id }) => id).sort())
      expect(await listOwnedIds(test_.db, 'host-a')).toEqual(new Set([...mine.map(({ id }) => id), error.id]))
    })

    test('pages cover every session once, newest first, also those of the same millisecond', async () => {
      const now = Date.now()
      const rows = await Promise.all([0, 0, 0, 1, 2].map((late) => insert({ created_at: now + late })))
      const seen: string[] = []
      let cursor: string | undefined
      do {
        const page = await listSessions(test_.db, 'default', { limit: 2, cursor })
        seen.push(...page.rows.map(({ id }) => id))
        cursor = page.nextCursor
      } while (cursor)
      expect(seen.slice(0, 2)).toEqual([rows[4]?.id, rows[3]?.id])
      expect([...seen].sort()).toEqual(rows.map(({ id }) => id).sort())
    })

    test('one session of a template is open for whom it is for, and another when that has ended', async () => {
      const whose = { template: 'data', agent_id: 'ada' }
      const row = await insert(whose)
      expect(await insertSession(test_.db, sessionRow(whose))).toBe(false)
      await insert({ ...whose, template: 'other' })
      await insert({ ...whose, agent_id: 'bob' })
      await insert({ ...whose, tenant_id: 'other' })
      await insert({ template: 'data' })
      await insert({ template: 'data' })
      expect(await findOpenSessionOf(test_.db, 'default', 'data', 'ada')).toMatchObject(row)
      expect(await findOpenSessionOf(test_.db, 'stranger', 'data', 'ada')).toBeUndefined()
      await moveSession(test_.db, fenceOf(row), 'ended')
      expect(await findOpenSessionOf(test_.db, 'default', 'data', 'ada')).toBeUndefined()
      await insert(whose)
    })

    test('of several that ask at the same time for the same person one makes the session', async () => {
      const rows = Array.from({ length: 8 }, () => sessionRow({ template: 'data', agent_id: 'ada' }))
      const made = await Promise.all(rows.map((row) => insertSession(test_.db, row)))
      expect(made.filter(Boolean)).toHaveLength(1)
    })

    test('a session for one execution that nobody used is found when its time is over', async () => {
      const old = { mode: 'ephemeral' as const, status: 'active' as const, idle_timeout_ms: 1_000 }
      const unused = await insert({ ...old, last_active_at: 5_000 })
      const busy = await insert({ ...old, last_active_at: 5_000 })
      await insert({ ...old, last_active_at: 6_500 })
      await insert({ ...old, last_active_at: 5_000, status: 'ended' })
      await insert({ ...old, last_active_at: 5_000, mode: 'persistent' })
      await insert({ ...old, last_active_at: 5_000, owner_id: 'host-b' })
      await test_.db
        .insertInto('executions')
        .values(executionRow({ session_id: busy.id }))
        .execute()
      const found = await listUnusedEphemeral(test_.db, 'host-a', 7_000, 3_000)
      expect(found).toEqual([{ id: unused.id, tenant_id: 'default' }])
      const asServer = await insert({ ...old, last_active_at: 5_000, idle_timeout_ms: null })
      const later = await listUnusedEphemeral(test_.db, 'host-a', 8_001, 3_000)
      expect(later).toContainEqual({ id: asServer.id, tenant_id: 'default' })
      expect(found).not.toContainEqual({ id: asServer.id, tenant_id: 'default' })
    })

    test('sessions without an agent are listed by their template', async () => {
      const row = await insert({ agent_name: null, agent_version: null, template: 'data' })
      await insert()
      const { rows } = await listSessions(test_.db, 'default', { limit: 10, template: 'data' })
      expect(rows).toMatchObject([row])
    })

    test('filters narrow the list, and a cursor of another kind is refused', async () => {
      const row = await insert({ agent_name: 'other', status: 'active' })
      await insert({ agent_name: 'other', status: 'ended' })
      await insert()
      const { rows } = await listSessions(test_.db, 'default', {
        limit: 10,
        agent: 'other',
        status: 'active',
      })
      expect(rows.map(({ id }) => id)).toEqual([row.id])
      await expect(
        listSessions(test_.db, 'default', { limit: 1, cursor: "1' or 1=1" }),
      ).rejects.toMatchObject({
        code: 'validation_failed',
      })
    })
  })
}
