import { get } from 'node:http'
import type { FastifyInstance } from 'fastify'
import { pino } from 'pino'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { createHttpApp } from '../http/http-app.ts'
import { createMetrics } from '../http/metrics.ts'
import { EventLogs } from './event-log.ts'
import { registerEventRoutes } from './event-routes.ts'
import type { SessionDeps } from './session-deps.ts'
import { type Fence, fenceOf, insertSession, type SessionRow } from './session-queries.ts'
import { sessionRow } from './testing/session-rows.ts'

const TURN = '0b0e6f6e-6a1f-4a53-9c8e-5f2c1a7d9e10'
const headers = { authorization: 'Bearer key' }

let db: TestDb
let app: FastifyInstance
let logs: EventLogs
let parent: Fence
let fork: Fence

/** Entries 1 to 4 are the parent's, of which the fork has the first three; then 4 to 6 are its own. */
beforeEach(async () => {
  db = await openSqliteTestDb()
  logs = new EventLogs(db.db)
  app = await createHttpApp({
    db: db.db,
    apiKey: 'key',
    log: pino({ level: 'silent' }),
    metrics: createMetrics(),
    version: '0',
  })
  const deps: Partial<SessionDeps> = { db: db.db, logs }
  registerEventRoutes(app, deps as SessionDeps)
  await app.listen({ port: 0, host: '127.0.0.1' })
  parent = await create({ status: 'ended' })
  await write(parent, ['turn', 'message', 'done', 'log'])
  fork = await create({ parent_session_id: parent.sessionId, fork_seq: 3 })
  await write(fork, ['turn', 'message', 'done'])
})
afterEach(async () => {
  await app.close()
  await db.close()
})

async function create(change: Partial<SessionRow>): Promise<Fence> {
  const row = sessionRow(change)
  await insertSession(db.db, row)
  return fenceOf(row)
}

async function write(fence: Fence, types: ('turn' | 'message' | 'done' | 'log')[]): Promise<void> {
  const log = await logs.get(fence)
  for (const type of types) await log.append(type, TURN, JSON.stringify({ by: fence.sessionId }))
}

interface Page {
  events: { seq: number; type: string; data: { by: string } }[]
  messages: { seq: number }[]
  nextCursor?: string
}

async function page(path: string): Promise<Page> {
  return (await app.inject({ url: `/api/sessions/${fork.sessionId}${path}`, headers })).json<Page>()
}

test('the log of a fork is paged as one, with a cursor until its end', async () => {
  const seen: string[] = []
  let cursor = ''
  for (let pages = 0; pages < 3; pages++) {
    const { events, nextCursor } = await page(`/events?limit=2${cursor}`)
    seen.push(...events.map(({ seq, type, data }) => `${seq} ${type} ${data.by === fork.sessionId}`))
    expect(nextCursor).toBe(pages < 2 ? String(2 * pages + 2) : undefined)
    cursor = `&cursor=${nextCursor}`
  }
  expect(seen).toEqual([
    '1 turn false',
    '2 message false',
    '3 done false',
    '4 turn true',
    '5 message true',
    '6 done true',
  ])
})

test('messages and filters of a fork reach back to its parent', async () => {
  const seqs = (entries: { seq: number }[]) => entries.map(({ seq }) => seq)
  expect(seqs((await page('/messages')).messages)).toEqual([1, 2, 4, 5])
  expect(seqs((await page('/events?types=done')).events)).toEqual([3, 6])
  expect(await page('/events?types=log')).toEqual({ events: [] })
  expect(seqs((await page(`/events?turnId=${TURN}&after=2`)).events)).toEqual([3, 4, 5, 6])
  const limited = await page('/messages?limit=2')
  expect([seqs(limited.messages), limited.nextCursor]).toEqual([[1, 2], '2'])
})

/** Ids of the frames that come, until there are so many. */
function streamIds(lastEventId: string, count: number): Promise<string[]> {
  const { port } = app.server.address() as { port: number }
  const url = `http://127.0.0.1:${port}/api/sessions/${fork.sessionId}/stream`
  return new Promise((resolve, reject) => {
    let text = ''
    const request = get(url, { headers: { ...headers, 'last-event-id': lastEventId } }, (reply) => {
      reply.on('data', (chunk: Buffer) => {
        text += chunk.toString()
        const ids = [...text.matchAll(/^id: (.+)$/gm)].map(([, id = '']) => id)
        if (ids.length < count) return
        resolve(ids)
        request.destroy()
      })
    }).on('error', reject)
  })
}

test.each([0, 1, 2, 3, 4, 5])('a stream of a fork replays all after %i, then goes on', async (after) => {
  const reading = streamIds(String(after), 7 - after)
  await write(fork, ['log'])
  await write(parent, ['log'])
  expect(await reading).toEqual(['1', '2', '3', '4', '5', '6', '7'].slice(after))
})
