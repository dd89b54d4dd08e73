import { createRequire } from 'node:module'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { ROOT } from '../../support/run-process.ts'
import type { LogEntry } from './log-entry.ts'

export interface StoredEntry extends LogEntry {
  turnId: string | null
}

const QUERY = `select cast(seq as integer) as seq, type, turn_id as "turnId", data from session_events
  where session_id = $1 order by seq`

export type ReadStored = (sessionId: string) => Promise<StoredEntry[]>

/** The log as it is in the database of a server that may be running. */
export function sqliteLog(dataDir: string): ReadStored {
  return async (sessionId) => {
    const db = new DatabaseSync(join(dataDir, 'ash.db'), { readOnly: true })
    try {
      return db.prepare(QUERY.replace('$1', '?')).all(sessionId) as unknown as StoredEntry[]
    } finally {
      db.close()
    }
  }
}

interface PostgresClient {
  connect(): Promise<void>
  query(sql: string, values: string[]): Promise<{ rows: StoredEntry[] }>
  end(): Promise<void>
}

export function postgresLog(url: string): ReadStored {
  // The server's own dependency; the tests have none on it.
  const { Client } = createRequire(join(ROOT, 'packages/server/package.json'))('pg') as {
    Client: new (url: string) => PostgresClient
  }
  return async (sessionId) => {
    const client = new Client(url)
    await client.connect()
    try {
      return (await client.query(QUERY, [sessionId])).rows
    } finally {
      await client.end()
    }
  }
}
