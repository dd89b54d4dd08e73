import { Registry } from 'prom-client'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { EventLogs } from './event-log.ts'
import { findLogEnd } from './event-queries.ts'
import { LiveSessions } from './live-sessions.ts'
import { WaitingTurns } from './queued-turns.ts'
import { sendMessage } from './send-message.ts'
import type { SessionDeps } from './session-deps.ts'
import { createSessionMetrics } from './session-metrics.ts'
import { fenceOf, insertSession, moveSession } from './session-queries.ts'
import { sessionRow } from './testing/session-rows.ts'
import { emptyPool, wakeWith } from './testing/stand-ins.ts'
import { TurnTiming } from './turn-timing.ts'

let db: TestDb
beforeEach(async () => {
  db = await openSqliteTestDb()
})
afterEach(() => db.close())

test('a message that comes as its session ends is refused instead of begun without a sandbox', async () => {
  const parts: Partial<SessionDeps> = {
    db: db.db,
    metrics: createSessionMetrics(new Registry(), emptyPool()),
    pool: emptyPool(),
    logs: new EventLogs(db.db),
    live: new LiveSessions(),
    waiting: new WaitingTurns(),
    sends: new Map(),
    maxLogChars: 1e9,
  }
  const deps = parts as SessionDeps
  const row = sessionRow({ status: 'active' })
  await insertSession(db.db, row)
  const fence = fenceOf(row)
  const { tenantId, sessionId } = fence
  const session = {
    fence,
    log: await deps.logs.get(fence),
    sandbox: { bridge: { isClosed: false } },
    gone: Promise.resolve(),
  }
  const live = await wakeWith(deps.live, sessionId, session)
  live.isLeaving = true
  const ending = deps.live.exclusive(sessionId, async () => {
    await moveSession(db.db, fence, 'ended')
    deps.live.release(live)
  })
  const timing = new TurnTiming(deps)
  const sending = sendMessage(deps, { tenantId, sessionId, message: { content: 'hi' }, timing })
  await ending
  await expect(sending).rejects.toMatchObject({ code: 'session_ended' })
  expect((await findLogEnd(db.db, tenantId, sessionId)).seq).toBe(0)
})
