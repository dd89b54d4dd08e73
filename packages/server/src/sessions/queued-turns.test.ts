import { randomUUID } from 'node:crypto'
import { AshError, type MessageSend } from '@ash-ai/shared'
import { type Kysely, sql } from 'kysely'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { EventLogs } from './event-log.ts'
import { listEvents } from './event-queries.ts'
import { type LiveSession, LiveSessions } from './live-sessions.ts'
import { PendingPermissions } from './pending-permissions.ts'
import { cancelWaitingTurns, enqueueTurn, resumeWaitingTurns, WaitingTurns } from './queued-turns.ts'
import type { SessionDeps } from './session-deps.ts'
import { createSessionMetrics } from './session-metrics.ts'
import { type Fence, fenceOf, insertSession } from './session-queries.ts'
import { sessionRow } from './testing/session-rows.ts'
import { emptyPool, wakeWith } from './testing/stand-ins.ts'
import { saveTurnRequest, type TurnRequestRow } from './turn-request-queries.ts'

let db: TestDb
let deps: SessionDeps
let fence: Fence
/** Settles the turns that the agent works on. */
let answers: PromiseWithResolvers<object>[]

beforeEach(async () => {
  db = await openSqliteTestDb()
  deps = newDeps()
  const row = sessionRow({ status: 'active' })
  await insertSession(db.db, row)
  fence = fenceOf(row)
  answers = []
})
afterEach(() => db.close())

/** The parts of a server that the queue uses. */
function newDeps(): SessionDeps {
  const parts: Partial<SessionDeps> = {
    db: db.db,
    hostId: 'host-a',
    log: pino({ level: 'silent' }),
    metrics: createSessionMetrics(new Registry(), emptyPool()),
    pool: emptyPool(),
    logs: new EventLogs(db.db),
    live: new LiveSessions(),
    waiting: new WaitingTurns(),
    turnTimeoutMs: 60_000,
    maxLogChars: 1e9,
  }
  return parts as SessionDeps
}

/** The session is awake; its agent answers when the test says so. */
async function wakeSession(): Promise<LiveSession> {
  const log = await deps.logs.get(fence)
  const run = () => {
    const answer = Promise.withResolvers<object>()
    answers.push(answer)
    return answer.promise
  }
  const live = {
    fence,
    log,
    options: {},
    permissions: new PendingPermissions(),
    lastNotedMs: Date.now(),
    gone: Promise.resolve(),
    budget: { beginTurn: () => {}, totals: () => ({ turn: { requests: 0 } }) },
    sandbox: { bridge: { isClosed: false, run, close: () => {} } },
  }
  return wakeWith(deps.live, fence.sessionId, live)
}

const message = (content: string): MessageSend => ({ content, queue: true })

const requestRow = (change: Partial<TurnRequestRow> = {}): TurnRequestRow => ({
  tenant_id: fence.tenantId,
  session_id: fence.sessionId,
  turn_id: randomUUID(),
  status: 'queued',
  position: 1,
  message: JSON.stringify(message('hi')),
  idempotency_key: null,
  request_hash: null,
  created_at: Date.now(),
  ...change,
})

const enqueue = (turnId: string = randomUUID()) =>
  enqueueTurn(deps, fence, message('hi'), requestRow({ turn_id: turnId }))

const entries = () => listEvents(db.db, fence.tenantId, fence.sessionId, { after: 0, limit: 100 })
const types = async () => (await entries()).map(({ type }) => type)
const requests = () => db.db.selectFrom('turn_requests').selectAll().execute()

/** The database refuses these entries until the returned function is called. */
async function refuseEntries(type: string): Promise<() => Promise<unknown>> {
  const untyped = db.db as Kysely<unknown>
  await sql`create trigger refuse before insert on session_events when new.type = ${sql.lit(type)}
    begin select raise(abort, 'no space'); end`.execute(untyped)
  return () => sql`drop trigger refuse`.execute(untyped)
}

test.each(['turn', 'error'])(
  'a cancelled message whose %s entry cannot be stored gets its two entries later, each once',
  async (refused) => {
    const row = requestRow({ status: 'cancelled' })
    await saveTurnRequest(db.db, row)
    const accept = await refuseEntries(refused)
    await resumeWaitingTurns(deps)
    const [turn] = deps.waiting.list(fence.sessionId)
    await expect.poll(async () => (await deps.logs.get(fence)).lastSeq).toBe(refused === 'turn' ? 0 : 1)
    await accept()
    expect(await turn?.begun.promise).toBe(1)
    await deps.waiting.settled()
    expect(await entries()).toMatchObject([
      { type: 'turn', turnId: row.turn_id },
      { type: 'error', turnId: row.turn_id },
    ])
    expect(await requests()).toEqual([])
  },
)

test('a message that cannot begin because nothing can be stored keeps its place and begins later', async () => {
  const live = await wakeSession()
  const accept = await refuseEntries('turn')
  const turn = await enqueue()
  await expect.poll(() => live.log.hasFailed).toBe(true)
  expect(deps.waiting.list(fence.sessionId)).toEqual([turn])
  live.log = await deps.logs.get(fence) // As with the sandbox that is started next.
  await accept()
  expect(await turn.begun.promise).toBe(1)
  answers[0]?.resolve({ ev: 'done', data: { stopReason: 'end_turn' } })
  await live.turn?.ended
  expect(await types()).toEqual(['turn', 'done'])
})

test('a message whose session cannot be woken is told of once, and the next has its turn', async () => {
  let starts = 0
  deps.assertSandboxing = async () => {
    starts++
    throw new TypeError('a fault of ours')
  }
  const turns = [await enqueue(), await enqueue()]
  await Promise.all(turns.map(({ begun }) => begun.promise))
  await deps.waiting.settled()
  expect((await entries()).map(({ type, turnId }) => [type, turnId])).toEqual(
    turns.flatMap(({ turnId }) => [
      ['turn', turnId],
      ['error', turnId],
    ]),
  )
  expect(starts).toBe(2)
})

test('everyone who waits hears that the server stops', async () => {
  await wakeSession()
  const turns = [await enqueue(), await enqueue(), await enqueue()]
  await turns[0]?.begun.promise
  await deps.live.close()
  answers[0]?.resolve({ ev: 'done', data: { stopReason: 'end_turn' } })
  for (const turn of turns.slice(1))
    await expect(turn.begun.promise).rejects.toMatchObject({ code: 'server_stopping' })
  expect((await requests()).map(({ status }) => status)).toEqual(['queued', 'queued'])
})

test('an interrupt does not count as waiting the message whose turn has just begun', async () => {
  const live = await wakeSession()
  const first = await enqueue()
  // Only promises: the entry that begins the turn cannot be stored meanwhile.
  while (!live.turn) await Promise.resolve()
  const second = randomUUID()
  const enqueued = enqueue(second)
  expect(deps.waiting.list(fence.sessionId).map(({ turnId }) => turnId)).toEqual([first.turnId, second])
  expect(await cancelWaitingTurns(deps, fence)).toEqual([second])
  await first.begun.promise
  answers[0]?.reject(new AshError('sandbox_died', 'the test is over'))
  await (await enqueued).begun.promise
  expect((await entries()).map(({ type, turnId }) => [type, turnId])).toEqual([
    ['turn', first.turnId],
    ['error', first.turnId],
    ['turn', second],
    ['error', second],
  ])
})
