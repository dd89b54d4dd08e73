import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type OpenDb, openDb } from '../open-db.ts'
import { type PostgresDatabase, PostgresServer } from './postgres-server.ts'

/** An empty, migrated database and a data folder beside it. `close` removes both. */
export interface TestDb extends OpenDb {
  dataDir: string
  /** Set for PostgreSQL. */
  databaseUrl?: string
  /** A second, independent opening of the same database. */
  reopen(): Promise<OpenDb>
}

export interface TestDatabase {
  kind: OpenDb['kind']
  open(): Promise<TestDb>
}

/**
 * Both databases, for real. Query tests loop over them:
 *
 *     for (const database of testDatabases) describe(database.kind, () => {
 *       let test: TestDb
 *       beforeEach(async () => { test = await database.open() })
 *       afterEach(() => test.close())
 */
export const testDatabases: readonly TestDatabase[] = [
  { kind: 'sqlite', open: () => openTestDb() },
  { kind: 'postgres', open: async () => openTestDb(await createPostgresDatabase()) },
]

/** For tests in which the kind of database makes no difference. */
export const openSqliteTestDb = (): Promise<TestDb> => openTestDb()

async function openTestDb(postgres?: PostgresDatabase): Promise<TestDb> {
  const dataDir = await mkdtemp(join(tmpdir(), 'ash-db-'))
  const options = { dataDir, sqliteSync: 'normal', ...(postgres && { databaseUrl: postgres.url }) } as const
  const opened = await openDb(options)
  return {
    ...opened,
    ...options,
    reopen: () => openDb(options),
    close: async () => {
      await opened.close()
      await postgres?.drop()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}

// One server for a test worker, started by the first test that asks and ended with the worker.
let server: Promise<PostgresServer> | undefined
let databases = 0

async function createPostgresDatabase(): Promise<PostgresDatabase> {
  server ??= PostgresServer.start()
  return (await server).createDatabase(`test_${++databases}`)
}
