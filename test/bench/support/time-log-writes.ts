import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EventLogs, fenceOf, insertSession, openDb, sessionRow } from '@ash-ai/server/testing'

export interface LogTimer {
  /** Milliseconds to make the entries durable in the log of a new session, with no bridge and no client about. */
  time(entries: string[]): Promise<number>
  close(): Promise<void>
}

export async function openLogTimer(): Promise<LogTimer> {
  const dataDir = await mkdtemp(join(tmpdir(), 'ash-bench-log-'))
  const { db, close } = await openDb({ dataDir, sqliteSync: 'normal' })
  const logs = new EventLogs(db)
  return {
    async time(entries) {
      const row = sessionRow({ status: 'active' })
      await insertSession(db, row)
      const log = await logs.get(fenceOf(row))
      const started = performance.now()
      for (const data of entries) await log.write('message', row.id, data)
      await log.flushed()
      const ms = performance.now() - started
      if (log.lastSeq !== entries.length)
        throw new Error(`${log.lastSeq} of ${entries.length} entries stored`)
      return ms
    },
    async close() {
      await close()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}
