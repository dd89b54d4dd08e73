// The server's own copy, for what is compared with it.
export { fastify } from 'fastify'
export { openDb } from '../db/open-db.ts'
export { PostgresServer } from '../db/testing/postgres-server.ts'
export { EventLogs } from '../sessions/event-log.ts'
export { fenceOf, insertSession } from '../sessions/session-queries.ts'
export { sessionRow } from '../sessions/testing/session-rows.ts'
