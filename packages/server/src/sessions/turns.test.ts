import { randomUUID } from 'node:crypto'
import type { AshError } from '@ash-ai/shared'
import { type Kysely, sql } from 'kysely'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { EventLogs } from './event-log.ts'
import { listEvents } from './event-queries.ts'
import type { LiveSession } from './live-sessions.ts'
import { PendingPermissions } from './pending-permissions.ts'
import { WaitingTurns } from './queued-turns.ts'
import type { SessionDeps } from './session-deps.ts'
import { createSessionMetrics } from './session-metrics.ts'
import { type Fence, fenceOf, getSession, insertSession } from './session-queries.ts'
import { sessionRow } from './testing/session-rows.ts'
import { emptyPool } from './testing/stand-ins.ts'
import { TurnTiming } from './turn-timing.ts'
import { interruptTurn, startTurn } from './turns.ts'

type TakeEvent = NonNullable<Parameters<LiveSession['sandbox']['bridge']['run']>[1]>

let db: TestDb
let deps: SessionDeps
let fence: Fence
let live: LiveSession
/** What the bridge does with a query, and why it was closed. */
let query: (take: TakeEvent) => Promise<object>
let closed: AshError[]

beforeEach(async () => {
  db = await openSqliteTestDb()
  const parts: Partial<SessionDeps> = {
    db: db.db,
    log: pino({ level: 'silent' }),
    metrics: createSessionMetrics(new Registry(), emptyPool()),
    pool: emptyPool(),
    waiting: new WaitingTurns(),
    logs: new EventLogs(db.db),
    turnTimeoutMs: 60_000,
    maxLogChars: 1e9,
  }
  deps = parts as SessionDeps
  const row = sessionRow({ status: 'active' })
  await insertSession(db.db, row)
  fence = fenceOf(row)
  closed = []
  const bridge = {
    run: (_command: object, take: TakeEvent) => query(take),
    close: (reason: AshError) => void closed.push(reason),
    call: () => new Promise(() => {}),
  }
  const session = {
    fence,
    log: await deps.logs.get(fence),
    options: {},
    permissions: new PendingPermissions(),
    lastNotedMs: Date.now(),
    sdkSessionId: null,
    budget: { beginTurn: () => {}, totals: () => ({ turn: { requests: 0 } }) },
    sandbox: { bridge, hasJustKilled: () => Promise.reject(new Error('statfs failed')) },
  }
  live = session as unknown as LiveSession
})
afterEach(() => db.close())

async function runTurn(): Promise<void> {
  const start = { turnId: randomUUID(), timing: new TurnTiming(deps) }
  await startTurn(deps, live, { content: 'hi' }, start)
  await live.turn?.ended
}

async function entries() {
  const all = await listEvents(db.db, fence.tenantId, fence.sessionId, { after: 0, limit: 100 })
  return all.map(({ type, data }) => ({ ...(JSON.parse(data) as object), type }))
}

const done = { ev: 'done', data: { stopReason: 'end_turn' } }

test('a turn has its end also where nobody can say why the agent crashed', async () => {
  query = async () => ({ ev: 'error', code: 'agent_crashed', error: 'the agent process ended' })
  await runTurn()
  expect(await entries()).toMatchObject([{ type: 'turn' }, { type: 'error', code: 'agent_crashed' }])
  expect(closed).toEqual([])
})

test('an answer that ends no turn ends the sandbox', async () => {
  query = async () => ({ ev: 'pong' })
  await runTurn()
  expect(await entries()).toMatchObject([{ type: 'turn' }, { type: 'error', code: 'bridge_protocol_error' }])
  expect(closed).toMatchObject([{ code: 'bridge_protocol_error' }])
})

test('an agent whose message could not be taken goes no further, and its conversation is still found', async () => {
  const sdkSessionId = randomUUID()
  query = async (take) => {
    const json = JSON.stringify({ type: 'system', session_id: sdkSessionId })
    await take({ ev: 'message', id: '1', type: 'system', sdkSessionId, json })
    return done
  }
  const untyped = db.db as Kysely<unknown>
  await sql`create trigger refuse before update on sessions begin select raise(abort, 'no space'); end`.execute(
    untyped,
  )
  await runTurn()
  expect(closed).toMatchObject([{ code: 'internal_error' }])
  await sql`drop trigger refuse`.execute(untyped)
  await runTurn()
  expect((await entries()).map(({ type }) => type)).toEqual(['turn', 'error', 'turn', 'message', 'done'])
  const row = await getSession(db.db, fence.tenantId, fence.sessionId)
  expect(row.sdk_session_id).toBe(sdkSessionId)
})

test('an interrupt that the bridge never answers is over with its turn', async () => {
  const answer = Promise.withResolvers<object>()
  query = () => answer.promise
  const turn = runTurn()
  await expect.poll(() => live.turn?.isSent).toBe(true)
  const interrupt = interruptTurn(live)
  answer.resolve(done)
  await turn
  await interrupt
})
