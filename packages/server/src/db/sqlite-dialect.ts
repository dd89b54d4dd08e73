import { DatabaseSync } from 'node:sqlite'
import {
  type CompiledQuery,
  type DatabaseConnection,
  type DatabaseIntrospector,
  type Dialect,
  type Driver,
  type Kysely,
  type QueryResult,
  SelectQueryNode,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from 'kysely'
import { StatementCache } from './sqlite-statement.ts'
import type { WriterOptions } from './sqlite-writer.ts'
import { SqliteWriter } from './sqlite-writer-client.ts'
import { TurnQueue } from './turn-queue.ts'

/**
 * SQLite with one writer thread. A select outside a transaction is read on the calling thread; everything
 * else, and everything in a transaction, goes to the writer.
 */
export class ThreadedSqliteDialect implements Dialect {
  readonly #driver: ThreadedSqliteDriver

  constructor(options: WriterOptions) {
    this.#driver = new ThreadedSqliteDriver(options)
  }

  createDriver(): Driver {
    return this.#driver
  }

  /** Runs a statement that changes rows, straight on the writer. Resolves with their number. */
  async change(sql: string, parameters: readonly unknown[]): Promise<number> {
    const connection = await this.#driver.acquireConnection()
    return connection.change(sql, parameters)
  }

  createQueryCompiler(): SqliteQueryCompiler {
    return new SqliteQueryCompiler()
  }

  createAdapter(): ThreadedSqliteAdapter {
    return new ThreadedSqliteAdapter()
  }

  // biome-ignore lint/suspicious/noExplicitAny: the signature is Kysely's.
  createIntrospector(db: Kysely<any>): DatabaseIntrospector {
    return new SqliteIntrospector(db)
  }
}

class ThreadedSqliteAdapter extends SqliteAdapter {
  // Kysely would let one query in at a time otherwise; the writer's own queue does that where it is needed.
  override get supportsMultipleConnections(): boolean {
    return true
  }

  override get supportsTransactionalDdl(): boolean {
    return true
  }
}

/** What every connection of one database shares. */
interface Threads {
  reader: DatabaseSync
  reads: StatementCache
  writer: SqliteWriter
  turns: TurnQueue
}

class ThreadedSqliteDriver implements Driver {
  readonly #options: WriterOptions
  #threads: Threads | undefined

  constructor(options: WriterOptions) {
    this.#options = options
  }

  async init(): Promise<void> {
    const writer = await SqliteWriter.open(this.#options)
    const reader = new DatabaseSync(this.#options.path, { readOnly: true, timeout: READ_TIMEOUT_MS })
    this.#threads = { reader, reads: new StatementCache(reader), writer, turns: new TurnQueue() }
  }

  async acquireConnection(): Promise<SqliteConnection> {
    if (!this.#threads) throw new Error('The database is not open')
    return new SqliteConnection(this.#threads)
  }

  async beginTransaction(connection: SqliteConnection): Promise<void> {
    await connection.begin()
  }

  async commitTransaction(connection: SqliteConnection): Promise<void> {
    await connection.end('commit')
  }

  async rollbackTransaction(connection: SqliteConnection): Promise<void> {
    await connection.end('rollback')
  }

  async releaseConnection(connection: SqliteConnection): Promise<void> {
    if (connection.isInTransaction) await connection.end('rollback')
  }

  async destroy(): Promise<void> {
    this.#threads?.reader.close()
    await this.#threads?.writer.close()
  }
}

/** In WAL mode readers wait for nobody, save for the moment in which another process recovers the log. */
const READ_TIMEOUT_MS = 1000

class SqliteConnection implements DatabaseConnection {
  readonly #threads: Threads
  #endTurn: (() => void) | undefined
  /** The writer has heard of the transaction. */
  #hasBegun = false

  constructor(threads: Threads) {
    this.#threads = threads
  }

  get isInTransaction(): boolean {
    return this.#endTurn !== undefined
  }

  /** The writer hears of it with the first statement: to ask it by itself would take as long as that. */
  async begin(): Promise<void> {
    this.#endTurn = await this.#threads.turns.take()
    this.#hasBegun = false
  }

  /** A failed commit leaves the transaction open for the rollback that follows; the turn ends either way then. */
  async end(how: 'commit' | 'rollback'): Promise<void> {
    try {
      if (this.#hasBegun) await this.#threads.writer.execute(how, [])
    } catch (error) {
      if (how === 'commit') throw error
    }
    this.#endTurn?.()
    this.#endTurn = undefined
  }

  async executeQuery<Row>({ query, sql, parameters }: CompiledQuery): Promise<QueryResult<Row>> {
    const { rows, changes } =
      !this.isInTransaction && SelectQueryNode.is(query)
        ? this.#threads.reads.run(sql, parameters)
        : await this.#write(sql, parameters)
    return { rows: rows as Row[], numAffectedRows: BigInt(changes) }
  }

  async change(sql: string, parameters: readonly unknown[]): Promise<number> {
    return (await this.#write(sql, parameters)).changes
  }

  // biome-ignore lint/correctness/useYield: Kysely asks for a generator; a stream would hold the reader open.
  async *streamQuery<Row>(): AsyncIterableIterator<QueryResult<Row>> {
    throw new Error('SQLite queries are not streamed: page them')
  }

  async #write(sql: string, parameters: readonly unknown[]) {
    const { turns, writer } = this.#threads
    if (this.isInTransaction) {
      const transaction = this.#hasBegun ? 'goes on' : 'begins'
      this.#hasBegun = true
      return await writer.execute(sql, parameters, transaction)
    }
    if (turns.isFree) return await writer.execute(sql, parameters)
    const endTurn = await turns.take()
    // The writer serves in order, so the turn is over once the statement is posted.
    const result = writer.execute(sql, parameters)
    endTurn()
    return await result
  }
}
