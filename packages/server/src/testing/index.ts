export { PostgresServer } from '../db/testing/postgres-server.ts'
