import { mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setImmediate as nextRound } from 'node:timers/promises'
import { PolledDisk, sessionDirs } from '@ash-ai/sandbox'
import { pino } from 'pino'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { OutsideWrites } from '../checkpoints/outside-writes.ts'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { EventLogs } from './event-log.ts'
import { listEvents } from './event-queries.ts'
import { LiveSessions } from './live-sessions.ts'
import { PendingPermissions } from './pending-permissions.ts'
import { WaitingTurns } from './queued-turns.ts'
import type { SessionDeps } from './session-deps.ts'
import { fenceOf, getSession, insertSession, type SessionRow } from './session-queries.ts'
import { recoverSessions, stopSessions } from './session-recovery.ts'
import { sessionRow } from './testing/session-rows.ts'
import { emptyPool, wakeWith } from './testing/stand-ins.ts'

let db: TestDb
let deps: SessionDeps
beforeEach(async () => {
  db = await openSqliteTestDb()
  deps = newDeps()
})
afterEach(() => db.close())

/** The parts of a server that recovery uses, as after a start. */
function newDeps(): SessionDeps {
  const parts: Partial<SessionDeps> = {
    db: db.db,
    dataDir: db.dataDir,
    hostId: 'host-a',
    log: pino({ level: 'silent' }),
    disk: new PolledDisk(),
    pool: emptyPool(),
    writes: new OutsideWrites(),
    logs: new EventLogs(db.db),
    live: new LiveSessions(),
    waiting: new WaitingTurns(),
  }
  return parts as SessionDeps
}

async function insert(change: Partial<SessionRow>): Promise<SessionRow> {
  const row = sessionRow(change)
  await insertSession(db.db, row)
  await mkdir(sessionDirs(db.dataDir, row.id).workspace, { recursive: true })
  await (await deps.logs.get(fenceOf(row))).append('turn', 't', '{}')
  return row
}

const entries = async ({ id }: SessionRow) =>
  (await listEvents(db.db, 'default', id, { after: 0, limit: 100 })).map(({ type, data }) => ({
    type,
    ...(JSON.parse(data) as object),
  }))

test('a session that was being ended when the server was killed is ended wholly, once', async () => {
  const row = await insert({ status: 'ended', host_uid: 70_000, ended_at: Date.now() })
  await recoverSessions(deps)
  await recoverSessions(deps)
  expect(await entries(row)).toMatchObject([
    { type: 'turn' },
    { type: 'error', turnId: 't', code: 'interrupted' },
    { type: 'status', status: 'ended' },
  ])
  expect(await getSession(db.db, 'default', row.id)).toMatchObject({ status: 'ended', host_uid: null })
  expect(await readdir(join(db.dataDir, 'sandboxes'))).toEqual([])
})

test('an end that could not be stored when the server stopped is stored at the next start', async () => {
  const row = await insert({ status: 'active' })
  const live = {
    fence: fenceOf(row),
    permissions: new PendingPermissions(),
    gone: Promise.resolve(),
    turn: { ended: Promise.resolve() },
    sandbox: { bridge: { isClosed: false, close: () => {} } },
  }
  await wakeWith(deps.live, row.id, live)
  await stopSessions(deps, 0)
  deps = newDeps()
  await recoverSessions(deps)
  expect((await entries(row)).map(({ type }) => type)).toEqual(['turn', 'error', 'status'])
  expect(await getSession(db.db, 'default', row.id)).toMatchObject({ status: 'paused' })
})

test('a turn that begins while the server stops has its end before the session is paused', async () => {
  const row = await insert({ status: 'active' })
  const live = {
    fence: fenceOf(row),
    permissions: new PendingPermissions(),
    gone: Promise.resolve(),
    turn: undefined as object | undefined,
    isPaused: true, // Saved already.
    sandbox: { bridge: { isClosed: false, close } },
  }
  /** Its message found the session awake just before, and nobody has heard of the turn yet. */
  function close() {
    live.turn = { ended: storeEnd(row) }
  }
  await wakeWith(deps.live, row.id, live)
  await stopSessions(deps, 0)
  expect((await entries(row)).map(({ type }) => type)).toEqual(['turn', 'done', 'status'])
})

async function storeEnd(row: SessionRow): Promise<void> {
  for (let rounds = 0; rounds < 100; rounds++) await nextRound()
  await (await deps.logs.get(fenceOf(row))).append('done', 't', '{}')
}
