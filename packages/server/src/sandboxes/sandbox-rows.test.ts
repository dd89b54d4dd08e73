import type { SandboxRow } from '@ash-ai/sandbox'
import type { FastifyBaseLogger } from 'fastify'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { insertSession } from '../sessions/session-queries.ts'
import { sessionRow } from '../sessions/testing/session-rows.ts'
import { createSandboxStore, forgetSandboxes, isUidTaken } from './sandbox-rows.ts'

const ROW: SandboxRow = {
  id: 'sandbox',
  tenantId: 'default',
  sessionId: null,
  template: '',
  agentName: 'agent',
  agentVersion: 1,
  state: 'warming',
  createdAt: 1_800_000_000_000,
  lastUsedAt: 1_800_000_000_000,
}

for (const database of testDatabases) {
  describe(`sandboxes in ${database.kind}`, () => {
    let opened: TestDb
    let warnings = 0
    beforeEach(async () => {
      opened = await database.open()
      warnings = 0
    })
    afterEach(() => opened.close())
    const log = { warn: () => warnings++ } as unknown as FastifyBaseLogger
    const storeOf = (hostId: string) => createSandboxStore({ db: opened.db, hostId, log })
    const stored = () => opened.db.selectFrom('sandboxes').selectAll().orderBy('id').execute()

    test('a spare is stored, becomes a session’s, and is gone', async () => {
      const store = storeOf('host-a')
      await store.put(ROW)
      await store.put({ ...ROW, sessionId: 'session', state: 'waiting', lastUsedAt: 1_800_000_000_005 })
      expect(await stored()).toEqual([
        {
          id: 'sandbox',
          tenant_id: 'default',
          owner_id: 'host-a',
          session_id: 'session',
          agent_name: 'agent',
          agent_version: 1,
          template: null,
          state: 'waiting',
          created_at: 1_800_000_000_000,
          last_used_at: 1_800_000_000_005,
        },
      ])
      await store.remove('sandbox')
      expect(await stored()).toEqual([])
    })

    test('one that runs code has a template and no agent', async () => {
      await storeOf('host-a').put({ ...ROW, template: 'python', agentName: null, agentVersion: null })
      const [row] = await stored()
      expect(row).toMatchObject({ template: 'python', agent_name: null, agent_version: null })
    })

    test('many states change at once, and what is not named stays', async () => {
      const store = storeOf('host-a')
      const ids = Array.from({ length: 1_200 }, (_, n) => `s${String(n).padStart(4, '0')}`)
      const rows = ids.map((id) => ({
        id,
        tenant_id: 'default',
        owner_id: 'host-a',
        session_id: null,
        agent_name: 'agent',
        agent_version: 1,
        template: null,
        state: 'waiting' as const,
        created_at: 1,
        last_used_at: 1,
      }))
      await opened.db.insertInto('sandboxes').values(rows).execute()
      await store.setStates([])
      const changes = ids
        .slice(1)
        .map((id, n) => ({ id, state: 'running' as const, lastUsedAt: 1_800_000_000_000 + n }))
      await store.setStates(changes)
      const after = await stored()
      expect(after[0]).toMatchObject({ state: 'waiting', last_used_at: 1 })
      expect(after.slice(1).every(({ state }) => state === 'running')).toBe(true)
      expect(after[1_199]?.last_used_at).toBe(1_800_000_001_198)
    })

    test('a host changes and forgets only what is its own', async () => {
      const [mine, theirs] = [storeOf('host-a'), storeOf('host-b')]
      await mine.put(ROW)
      await theirs.put({ ...ROW, id: 'theirs' })
      await theirs.put({ ...ROW, state: 'running' })
      await theirs.setStates([{ id: 'sandbox', state: 'running', lastUsedAt: 5 }])
      await theirs.remove('sandbox')
      expect((await stored()).map(({ id, state }) => [id, state])).toEqual([
        ['sandbox', 'warming'],
        ['theirs', 'warming'],
      ])
      await forgetSandboxes(opened.db, 'host-a')
      expect((await stored()).map(({ id }) => id)).toEqual(['theirs'])
    })

    test('a host user is taken by a session of this host, until it is given back', async () => {
      await insertSession(opened.db, sessionRow({ host_uid: 7, tenant_id: 'other', owner_id: 'host-a' }))
      expect(await isUidTaken(opened.db, 'host-a', 7)).toBe(true)
      expect(await isUidTaken(opened.db, 'host-b', 7)).toBe(false)
      expect(await isUidTaken(opened.db, 'host-a', 8)).toBe(false)
    })

    test('what cannot be stored is told, in the log and to whoever tries again', async () => {
      const store = storeOf('host-a')
      const wrong = { ...ROW, tenantId: null as unknown as string }
      await expect(store.put(wrong)).rejects.toThrow()
      expect(warnings).toBe(1)
    })
  })
}
