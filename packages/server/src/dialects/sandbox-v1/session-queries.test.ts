import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type TestDb, testDatabases } from '../../db/testing/test-databases.ts'
import { insertExecution } from '../../executions/execution-queries.ts'
import { executionRow } from '../../executions/testing/execution-rows.ts'
import { insertSession, type SessionRow } from '../../sessions/session-queries.ts'
import { sessionRow } from '../../sessions/testing/session-rows.ts'
import { getLatestExecution, getV1Execution, listV1Executions } from './execution-queries.ts'
import { assertFreeId, getV1Session, listV1Sessions, setExternalId } from './session-queries.ts'
import type { V1SessionList } from './session-schemas.ts'

for (const database of testDatabases) {
  describe(`sessions of the dialect, in ${database.kind}`, () => {
    let opened: TestDb
    beforeAll(async () => {
      opened = await database.open()
    })
    afterAll(() => opened.close())

    const insert = async (change: Partial<SessionRow>, name?: string) => {
      const row = sessionRow({ template: 'python', status: 'active', ...change })
      expect(await insertSession(opened.db, row)).toBe(true)
      if (name !== undefined) await setExternalId(opened.db, row, name)
      return row
    }
    const list = (tenantId: string, query: Partial<V1SessionList> = {}) =>
      listV1Sessions(opened.db, tenantId, { limit: 50, offset: 0, ...query })

    test('are found by their name and by our id, by their own tenant alone', async () => {
      const tenant_id = randomUUID()
      const row = await insert({ tenant_id }, 'mine')
      for (const id of ['mine', row.id])
        expect(await getV1Session(opened.db, tenant_id, id)).toMatchObject({
          id: row.id,
          external_id: 'mine',
        })
      for (const id of ['mine', row.id])
        await expect(getV1Session(opened.db, 'other', id)).rejects.toMatchObject({
          code: 'session_not_found',
        })
      await insert({ tenant_id: 'other' }, 'mine')
    })

    test('have a name that no other of the tenant has, until it is taken away', async () => {
      const tenant_id = randomUUID()
      const first = await insert({ tenant_id }, 'taken')
      const conflict = { code: 'session_conflict' }
      await expect(insert({ tenant_id }, 'taken')).rejects.toMatchObject(conflict)
      for (const id of ['taken', first.id])
        await expect(assertFreeId(opened.db, tenant_id, id)).rejects.toMatchObject(conflict)
      await setExternalId(opened.db, first, null)
      await insert({ tenant_id }, 'taken')
    })

    test('cannot be hidden by calling another by their id', async () => {
      const tenant_id = randomUUID()
      const row = await insert({ tenant_id })
      await insert({ tenant_id }, row.id)
      expect(await getV1Session(opened.db, tenant_id, row.id)).toMatchObject({ external_id: null })
    })

    test('that are for one run end as the run did', async () => {
      const tenant_id = randomUUID()
      const outcomes = {
        completed: 'completed',
        crashed: 'failed',
        timeout: 'timeout',
        cancelled: 'terminated',
      }
      for (const [status, word] of Object.entries(outcomes)) {
        const row = await insert({ tenant_id, mode: 'ephemeral', status: 'ended' }, word)
        const run = executionRow({ tenant_id, session_id: row.id, status: status as 'completed' })
        expect(await insertExecution(opened.db, run)).toBe(true)
        expect(await getV1Session(opened.db, tenant_id, word)).toMatchObject({ v1_status: word })
        expect(await list(tenant_id, { status: word as 'completed' })).toMatchObject({
          rows: [{ external_id: word }],
          total: 1,
        })
      }
    })

    test.each([
      ['starting', 'creating'],
      ['active', 'running'],
      ['paused', 'running'],
      ['error', 'failed'],
      ['ended', 'terminated'],
    ] as const)('that are %s are %s', async (status, word) => {
      const tenant_id = randomUUID()
      const { id } = await insert({ tenant_id, status })
      expect(await getV1Session(opened.db, tenant_id, id)).toMatchObject({ v1_status: word })
    })

    test('are listed in pages, without those that were deleted and those without a template', async () => {
      const tenant_id = randomUUID()
      for (const [index, name] of ['a', 'b', 'c'].entries())
        await insert({ tenant_id, created_at: index }, name)
      await insert({ tenant_id, status: 'ended' })
      await insert({ tenant_id, template: null })
      await insert({ tenant_id, template: 'node', created_at: 9 }, 'd')
      const names = async (query: Partial<V1SessionList>) => {
        const { rows, total } = await list(tenant_id, query)
        return [rows.map(({ external_id }) => external_id).join(''), total]
      }
      expect(await names({})).toEqual(['dcba', 4])
      expect(await names({ limit: 2, offset: 1 })).toEqual(['cb', 4])
      expect(await names({ template_id: 'python', limit: 1 })).toEqual(['c', 3])
    })

    test('have executions that are found without them, until they are deleted', async () => {
      const tenant_id = randomUUID()
      const row = await insert({ tenant_id, status: 'ended' }, 'owner')
      const runs = [1, 2, 3].map((created_at) =>
        executionRow({ tenant_id, session_id: row.id, created_at, status: 'completed' }),
      )
      for (const run of runs) await insertExecution(opened.db, run)
      const newest = runs[2]?.id ?? ''
      expect(await getLatestExecution(opened.db, tenant_id, row.id)).toMatchObject({ id: newest })
      expect(await getV1Execution(opened.db, tenant_id, newest)).toMatchObject({ external_id: 'owner' })
      const page = { limit: 1, offset: 1 }
      expect(await listV1Executions(opened.db, tenant_id, row.id, page)).toMatchObject({
        rows: [{ id: runs[1]?.id }],
        total: 3,
      })
      const missing = { code: 'execution_not_found' }
      await expect(getV1Execution(opened.db, 'other', newest)).rejects.toMatchObject(missing)
      await setExternalId(opened.db, row, null)
      await expect(getV1Execution(opened.db, tenant_id, newest)).rejects.toMatchObject(missing)
    })
  })
}
