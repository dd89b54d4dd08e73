import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite'

export interface StatementResult {
  rows: Record<string, unknown>[]
  changes: number
}

/** More texts than the server has queries; inserts of many rows make one text per row count. */
const MAX_CACHED_STATEMENTS = 200

interface Prepared {
  statement: StatementSync
  hasRows: boolean
}

/** Runs SQL on one connection, keeping the statements used last prepared. */
export class StatementCache {
  readonly #db: DatabaseSync
  readonly #prepared = new Map<string, Prepared>()

  constructor(db: DatabaseSync) {
    this.#db = db
  }

  get size(): number {
    return this.#prepared.size
  }

  run(sql: string, parameters: readonly unknown[]): StatementResult {
    const { statement, hasRows } = this.#take(sql)
    const values = parameters as readonly SQLInputValue[]
    if (!hasRows) return { rows: [], changes: Number(statement.run(...values).changes) }
    const rows = statement.all(...values)
    return { rows, changes: rows.length }
  }

  #take(sql: string): Prepared {
    const prepared = this.#prepared.get(sql) ?? this.#prepare(sql)
    // Deleting first moves the text to the end: the one in front is the one unused for longest.
    this.#prepared.delete(sql)
    this.#prepared.set(sql, prepared)
    if (this.#prepared.size > MAX_CACHED_STATEMENTS) {
      const [oldest] = this.#prepared.keys()
      if (oldest !== undefined) this.#prepared.delete(oldest)
    }
    return prepared
  }

  #prepare(sql: string): Prepared {
    const statement = this.#db.prepare(sql)
    // Asked once: the answer is an object for each column.
    return { statement, hasRows: statement.columns().length > 0 }
  }
}
