import Fastify, { type FastifyInstance } from 'fastify'
import { type Kysely, sql } from 'kysely'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { openSqliteTestDb, type TestDb } from '../db/testing/test-databases.ts'
import { SSEWriter } from '../http/sse-writer.ts'
import { type EventLog, EventLogs } from './event-log.ts'
import { type Fence, fenceOf, insertSession } from './session-queries.ts'
import { streamLog } from './stream-log.ts'
import { sessionRow } from './testing/session-rows.ts'

let db: TestDb
let log: EventLog
let fence: Fence
let app: FastifyInstance
beforeEach(async () => {
  db = await openSqliteTestDb()
  const row = sessionRow({ status: 'active' })
  await insertSession(db.db, row)
  fence = fenceOf(row)
  log = await new EventLogs(db.db).get(fence)
  await log.append('turn', 't', '{}')
  app = Fastify()
  const after = { seq: 0, sub: 0 }
  app.get('/turn', (_, reply) => streamLog(new SSEWriter(reply), { log, after, isLast: () => false }))
  app.get('/stream', (_, reply) => streamLog(new SSEWriter(reply), { log, after }))
  await app.listen({ host: '127.0.0.1', port: 0 })
})
afterEach(async () => {
  app.server.closeAllConnections()
  await app.close()
  await db.close()
})

async function failLog(): Promise<void> {
  const refuse = sql`create trigger refuse before insert on session_events begin select raise(abort, 'no space'); end`
  await refuse.execute(db.db as Kysely<unknown>)
  await expect(log.append('log', null, '{}')).rejects.toThrow('no space')
}

async function open(path: string): Promise<Response> {
  const { port } = app.server.address() as { port: number }
  return fetch(`http://127.0.0.1:${port}${path}`)
}

test('when the log fails, the stream of a turn breaks off: it has no end that a client could take for its own', async () => {
  const reply = await open('/turn')
  await failLog()
  await expect(reply.text()).rejects.toThrow('terminated')
})

test('when the log fails, a stream without an end is closed, so that its client comes back', async () => {
  const reply = await open('/stream')
  await failLog()
  expect(await reply.text()).toBe('id: 1\nevent: turn\ndata: {}\n\n')
})

test('when entries cannot be read, the stream breaks off', async () => {
  log = await new EventLogs(db.db).get(fence) // Has nothing in memory.
  await sql`alter table session_events rename to elsewhere`.execute(db.db as Kysely<unknown>)
  await expect(open('/stream').then((reply) => reply.text())).rejects.toThrow(/terminated|failed/)
})
