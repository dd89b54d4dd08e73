import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pino } from 'pino'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { insertSession } from '../sessions/session-queries.ts'
import { sessionRow } from '../sessions/testing/session-rows.ts'
import { cleanArtifacts, openArtifact, servedType } from './artifact-store.ts'
import { type ExecutionRow, getExecution, insertExecution } from './execution-queries.ts'
import { executionRow } from './testing/execution-rows.ts'

let opened: TestDb
let store: Parameters<typeof cleanArtifacts>[0]
const session = sessionRow({ status: 'active' })
beforeEach(async () => {
  opened = await openSqliteTestDb()
  store = { db: opened.db, dataDir: opened.dataDir, hostId: 'host-a', log: pino({ level: 'silent' }) }
  await insertSession(opened.db, session)
})
afterEach(() => opened.close())

const folder = (...path: string[]) => join(opened.dataDir, 'artifacts', 'default', ...path)

async function withFiles(change: Partial<ExecutionRow>): Promise<ExecutionRow> {
  const artifacts = JSON.stringify([
    { path: 'a.txt', size: 1, mimeType: 'text/plain', sha256: 'x', file: '0' },
  ])
  const row = executionRow({ session_id: session.id, artifacts, finished_at: 1, ...change })
  await insertExecution(opened.db, row)
  await mkdir(folder(row.id), { recursive: true })
  await writeFile(folder(row.id, '0'), 'a')
  return row
}

test('files are removed when their time has come, and those that belong to nobody', async () => {
  const old = await withFiles({ artifacts_until: 10 })
  const young = await withFiles({ artifacts_until: 1000 })
  const running = await withFiles({ artifacts: null, finished_at: null, status: 'running' })
  const orphan = executionRow().id
  await mkdir(folder(orphan), { recursive: true })
  await mkdir(folder('not-ours'), { recursive: true })
  await cleanArtifacts(store, 500)
  expect((await readdir(folder())).sort()).toEqual([young.id, running.id, 'not-ours'].sort())
  expect(await getExecution(opened.db, 'default', session.id, old.id)).toMatchObject({
    artifacts_until: null,
  })
  await expect(openArtifact(store, { ...old, artifacts_until: null }, 'a.txt')).rejects.toMatchObject({
    code: 'artifact_not_found',
  })
  const { handle } = await openArtifact(store, young, 'a.txt')
  expect(await handle.readFile('utf8')).toBe('a')
  await handle.close()
})

test('nothing is opened that the row does not name', async () => {
  const row = await withFiles({ artifacts_until: 1000 })
  for (const path of ['0', '../0', 'b.txt', ''])
    await expect(openArtifact(store, row, path)).rejects.toMatchObject({ code: 'artifact_not_found' })
})

test('cleaning where nothing was ever kept does nothing', async () => {
  await cleanArtifacts(store)
})

test('only what cannot do harm is served as what it is', () => {
  const types = ['image/png', 'text/csv', 'application/json', 'text/html', 'image/svg+xml', 'application/pdf']
  const bytes = 'application/octet-stream'
  expect(types.map((mimeType) => servedType({ mimeType }))).toEqual([
    ...types.slice(0, 3),
    bytes,
    bytes,
    bytes,
  ])
})
