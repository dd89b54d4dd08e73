import { afterEach, beforeEach, expect, test } from 'vitest'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { insertSession } from '../sessions/session-queries.ts'
import { sessionRow } from '../sessions/testing/session-rows.ts'
import { ArtifactRoom } from './artifact-room.ts'
import { insertExecution } from './execution-queries.ts'
import { executionRow } from './testing/execution-rows.ts'

let opened: TestDb
beforeEach(async () => {
  opened = await openSqliteTestDb()
})
afterEach(() => opened.close())

test('runs of a session share its room, also those that end at the same time', async () => {
  const session = sessionRow()
  await insertSession(opened.db, session)
  const row = executionRow({ session_id: session.id, artifacts_until: 5, artifacts_bytes: 40 })
  await insertExecution(opened.db, row)
  const room = new ArtifactRoom()
  const deps = { db: opened.db, dataDir: opened.dataDir, maxArtifactBytes: 100 }
  const offered: number[] = []
  const keep = (bytes: number) =>
    room.use(deps, row, async (maxBytes) => {
      offered.push(maxBytes)
      return { bytes }
    })
  await Promise.all([keep(25), keep(30), keep(50)])
  expect(offered).toEqual([60, 35, 5])
  await keep(1)
  expect(offered.at(-1)).toBe(0)
})

test('a run that fails to keep its files leaves the others their room', async () => {
  const session = sessionRow()
  const room = new ArtifactRoom()
  const deps = { db: opened.db, dataDir: opened.dataDir, maxArtifactBytes: 100 }
  const run = executionRow({ session_id: session.id })
  const failed = room.use(deps, run, async () => {
    throw new Error('lost')
  })
  const next = room.use(deps, run, async (maxBytes) => ({ bytes: maxBytes }))
  await expect(failed).rejects.toThrow('lost')
  expect(await next).toEqual({ bytes: 100 })
})

test.each([
  [50, 1_000, 100],
  [49, 1_000, 0],
])('with %i of %i blocks free, a run may keep %i bytes', async (bavail, blocks, maxBytes) => {
  const room = new ArtifactRoom(async () => ({ bavail, blocks }))
  const deps = { db: opened.db, dataDir: opened.dataDir, maxArtifactBytes: 100 }
  const offered = await room.use(deps, executionRow(), async (bytes) => ({ bytes }))
  expect(offered.bytes).toBe(maxBytes)
})
