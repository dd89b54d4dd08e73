import { mkdir, open } from 'node:fs/promises'
import { join } from 'node:path'
import { type CompiledQuery, Kysely, PostgresDialect } from 'kysely'
import { migrate } from './migrate.ts'
import { openPostgresPool } from './postgres-pool.ts'
import { ThreadedSqliteDialect } from './sqlite-dialect.ts'
import type { Tables } from './tables.ts'

export type Db = Kysely<Tables>

export interface OpenDb {
  db: Db
  kind: 'sqlite' | 'postgres'
  close(): Promise<void>
}

export interface DbOptions {
  dataDir: string
  databaseUrl?: string
  /** `full` makes an acknowledged write survive power loss too. */
  sqliteSync: 'normal' | 'full'
}

/** Opens the database and brings its schema up to date. Without a URL it is SQLite, `<dataDir>/ash.db`. */
export async function openDb({ dataDir, databaseUrl, sqliteSync }: DbOptions): Promise<OpenDb> {
  const db =
    databaseUrl === undefined ? await openSqlite(dataDir, sqliteSync) : await openPostgres(databaseUrl)
  try {
    await migrate(db)
  } catch (error) {
    await db.destroy()
    throw error
  }
  return { db, kind: databaseUrl === undefined ? 'sqlite' : 'postgres', close: () => db.destroy() }
}

/** Names this database, however often it is moved. */
export async function getInstallationId(db: Db): Promise<string> {
  return (await db.selectFrom('installation').select('id').executeTakeFirstOrThrow()).id
}

const BUSY_TIMEOUT_MS = 5000

async function openSqlite(dataDir: string, sync: 'normal' | 'full'): Promise<Db> {
  await mkdir(dataDir, { recursive: true })
  const path = join(dataDir, 'ash.db')
  await makePrivate(path)
  const dialect = new ThreadedSqliteDialect({ path, sync, busyTimeoutMs: BUSY_TIMEOUT_MS })
  const db = new Kysely<Tables>({ dialect })
  directChanges.set(db, (sql, parameters) => dialect.change(sql, parameters))
  return db
}

type Change = (sql: string, parameters: readonly unknown[]) => Promise<number>

/** Kysely's own way to the database is a dozen promises long, which every message of every turn would wait for. */
const directChanges = new WeakMap<Db, Change>()

/** Runs a statement that changes rows, outside any transaction. Resolves with their number. */
export async function changeRows(db: Db, query: CompiledQuery, parameters: unknown[]): Promise<number> {
  const direct = directChanges.get(db)
  if (direct) return direct(query.sql, parameters)
  return Number((await db.executeQuery({ ...query, parameters })).numAffectedRows)
}

/** SQLite gives its log files the mode of the database. */
async function makePrivate(path: string): Promise<void> {
  const file = await open(path, 'a', 0o600)
  try {
    await file.chmod(0o600)
  } finally {
    await file.close()
  }
}

async function openPostgres(databaseUrl: string): Promise<Db> {
  return new Kysely<Tables>({ dialect: new PostgresDialect({ pool: await openPostgresPool(databaseUrl) }) })
}
