import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { EventLog } from '../sessions/event-log.ts'
import { fenceOf, insertSession, type SessionRow } from '../sessions/session-queries.ts'
import { sessionRow } from '../sessions/testing/session-rows.ts'
import {
  deleteExecution,
  type ExecutionRow,
  findExecutionByKey,
  forgetArtifacts,
  getExecution,
  hasExecutions,
  insertExecution,
  listExecutions,
  listExpiredArtifacts,
  listKeptIds,
  listLastFinished,
  listOpenExecutions,
  listSpentSessions,
  moveExecution,
  sumKeptBytes,
} from './execution-queries.ts'
import { findFirstEntry, findLastStatus, readOutput } from './output-queries.ts'
import { executionRow } from './testing/execution-rows.ts'

for (const database of testDatabases)
  describe(database.kind, () => {
    let opened: TestDb
    let session: SessionRow
    beforeEach(async () => {
      opened = await database.open()
      session = sessionRow({ status: 'active', mode: 'ephemeral' })
      await insertSession(opened.db, session)
    })
    afterEach(() => opened.close())

    const row = (change: Partial<ExecutionRow> = {}) => executionRow({ session_id: session.id, ...change })
    const insert = async (change: Partial<ExecutionRow> = {}) => {
      const inserted = row(change)
      expect(await insertExecution(opened.db, inserted)).toBe(true)
      return inserted
    }

    test('an execution is found by its tenant and session only', async () => {
      const stored = await insert({ code: 'print("ü")' })
      expect(await getExecution(opened.db, 'default', session.id, stored.id)).toEqual(stored)
      for (const [tenant, of] of [
        ['other', session.id],
        ['default', 'another'],
      ] as const)
        await expect(getExecution(opened.db, tenant, of, stored.id)).rejects.toMatchObject({
          code: 'session_not_found',
        })
      await expect(getExecution(opened.db, 'default', session.id, 'another')).rejects.toMatchObject({
        code: 'execution_not_found',
      })
      expect(await hasExecutions(opened.db, 'default', session.id)).toBe(true)
      expect(await hasExecutions(opened.db, 'other', session.id)).toBe(false)
      await deleteExecution(opened.db, { ...stored, tenant_id: 'other' })
      await deleteExecution(opened.db, stored)
      expect(await hasExecutions(opened.db, 'default', session.id)).toBe(false)
    })

    test('a key belongs to one execution of a tenant; without a key there are any number', async () => {
      const first = await insert({ idempotency_key: 'k' })
      expect(await insertExecution(opened.db, row({ idempotency_key: 'k' }))).toBe(false)
      await insert()
      await insert()
      expect((await findExecutionByKey(opened.db, 'default', 'k'))?.id).toBe(first.id)
      expect(await findExecutionByKey(opened.db, 'other', 'k')).toBeUndefined()
    })

    test('of two who change an execution at once one wins', async () => {
      const stored = await insert()
      const change = { status: 'running' as const, started_at: 5 }
      const won = await Promise.all([
        moveExecution(opened.db, stored, change),
        moveExecution(opened.db, stored, change),
      ])
      expect(won.filter(Boolean)).toHaveLength(1)
      const running = { ...stored, ...change }
      expect(await moveExecution(opened.db, { ...running, attempt: 2 }, { status: 'failed' })).toBe(false)
      expect(await moveExecution(opened.db, { ...running, owner_id: 'b' }, { status: 'failed' })).toBe(false)
      expect(await moveExecution(opened.db, running, { status: 'completed', result: 'null' })).toBe(true)
      expect(await getExecution(opened.db, 'default', session.id, stored.id)).toMatchObject({
        result: 'null',
      })
    })

    test('a list goes on where the page before ended, newest first, without what is large', async () => {
      for (let at = 1; at <= 5; at++)
        await insert({ created_at: at, status: at % 2 ? 'completed' : 'failed', result: '1', code: 'large' })
      const first = await listExecutions(opened.db, 'default', session.id, { limit: 2 })
      expect(first.rows.map(({ created_at }) => created_at)).toEqual([5, 4])
      expect(first.rows[0]).toMatchObject({ has_result: 1 })
      expect(first.rows[0]).not.toHaveProperty('code')
      const page = { limit: 10, cursor: first.nextCursor }
      const rest = await listExecutions(opened.db, 'default', session.id, page)
      expect(rest.rows.map(({ created_at }) => created_at)).toEqual([3, 2, 1])
      expect(rest.nextCursor).toBeUndefined()
      const failed = await listExecutions(opened.db, 'default', session.id, { limit: 10, status: 'failed' })
      expect(failed.rows.map(({ created_at }) => created_at)).toEqual([4, 2])
      expect((await listExecutions(opened.db, 'other', session.id, { limit: 10 })).rows).toEqual([])
      await expect(
        listExecutions(opened.db, 'default', session.id, { limit: 1, cursor: 'x' }),
      ).rejects.toMatchObject({ code: 'validation_failed' })
    })

    test('what is not over is found in the order in which it came, and spent sessions too', async () => {
      const second = await insert({ created_at: 2, status: 'running' })
      const first = await insert({ created_at: 1 })
      await insert({ created_at: 1, owner_id: 'host-b' })
      expect(await listSpentSessions(opened.db, 'host-a')).toEqual([])
      await insert({ created_at: 3, status: 'failed', finished_at: 4 })
      const open = await listOpenExecutions(opened.db, 'host-a')
      expect(open.map(({ id }) => id)).toEqual([first.id, second.id])
      expect(await listSpentSessions(opened.db, 'host-a')).toEqual([
        { tenantId: 'default', sessionId: session.id },
      ])
    })

    test('those that ended last are found, of this host', async () => {
      expect(await listLastFinished(opened.db, 'host-a', 100, 10)).toEqual([])
      await insert({ status: 'failed', finished_at: 800 })
      const [second, last] = [
        await insert({ status: 'failed', finished_at: 950 }),
        await insert({ status: 'failed', finished_at: 1_000 }),
      ]
      await insert({ status: 'failed', finished_at: 2_000, owner_id: 'host-b' })
      const found = await listLastFinished(opened.db, 'host-a', 100, 10)
      expect(found.map(({ id }) => id)).toEqual([last.id, second.id])
    })

    test('what is kept of a session is counted as long as it is kept', async () => {
      expect(await sumKeptBytes(opened.db, 'default', session.id)).toBe(0)
      const old = await insert({ artifacts_until: 5, artifacts_bytes: 30, finished_at: 1 })
      await insert({ artifacts_until: 5, artifacts_bytes: 4, finished_at: 1 })
      expect(await sumKeptBytes(opened.db, 'default', session.id)).toBe(34)
      await forgetArtifacts(opened.db, 'default', old.id)
      expect(await sumKeptBytes(opened.db, 'default', session.id)).toBe(4)
    })

    test('files are kept until their time', async () => {
      const old = await insert({ artifacts: '[]', artifacts_until: 5, finished_at: 1 })
      const young = await insert({ artifacts: '[]', artifacts_until: 50, finished_at: 1 })
      const over = await insert({ finished_at: 1 })
      const found = await listExpiredArtifacts(opened.db, 'host-a', 10, 10)
      expect(found).toEqual([{ tenantId: 'default', id: old.id }])
      await forgetArtifacts(opened.db, 'default', old.id)
      expect(await listExpiredArtifacts(opened.db, 'host-a', 10, 10)).toEqual([])
      const ids = [old.id, young.id, over.id]
      expect(await listKeptIds(opened.db, 'default', ids)).toEqual(new Set([young.id]))
      const page = { limit: 10, hasArtifacts: true }
      const { rows } = await listExecutions(opened.db, 'default', session.id, page)
      expect(new Set(rows.map(({ id }) => id))).toEqual(new Set([old.id, young.id]))
    })

    test('output is read from the log: of this execution, of its last attempt', async () => {
      const stored = await insert({ attempt: 2 })
      const log = new EventLog(opened.db, fenceOf(session), { seq: 0, totalChars: 0, forkSeq: 0 })
      const write = (executionId: string, text: string, attempt?: number) =>
        log.append(
          'output',
          executionId,
          JSON.stringify({ executionId, stream: 'stdout', text, ...(attempt && { attempt }) }),
        )
      const tell = (executionId: string, status: string) =>
        log.append('execution', executionId, JSON.stringify({ executionId, status }))
      await write('another', 'other')
      expect(await findLastStatus(opened.db, stored)).toBeUndefined()
      await tell(stored.id, 'running')
      await write(stored.id, 'first attempt')
      for (let line = 0; line < 150; line++) await write(stored.id, `${line}\n`, 2)
      const { stdout, stderr } = await readOutput(opened.db, stored)
      expect(stdout.split('\n')).toHaveLength(151)
      expect(stdout).toMatch(/^0\n1\n/)
      expect(stderr).toBe('')
      await tell(stored.id, 'completed')
      await tell('another', 'failed')
      expect(await findFirstEntry(opened.db, stored)).toBe(2)
      expect(await findLastStatus(opened.db, stored)).toBe('completed')
    })
  })
