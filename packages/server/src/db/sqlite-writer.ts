/**
 * The thread that owns every SQLite write: a lock or a slow disk stops this thread and not the event loop.
 * Requests are served in the order they were posted.
 */
import { DatabaseSync } from 'node:sqlite'
import { parentPort, workerData } from 'node:worker_threads'
import { StatementCache } from './sqlite-statement.ts'

export interface WriterOptions {
  path: string
  sync: 'normal' | 'full'
  busyTimeoutMs: number
}

/** A checkpoint waits for the disk, and the commit that brings it about waits with it: so it comes when nobody does. */
const REST_MS = 200
/** Without a rest. 16 MB, one commit in some five hundred turns. */
const CHECKPOINT_PAGES = 4_000

export type WriterRequest = WriterStatement | { close: true }

export interface WriterStatement {
  id: number
  sql: string
  parameters: readonly unknown[]
  /** It begins a transaction, or belongs into the one that is open: outside of one it would stand by itself. */
  transaction?: 'begins' | 'goes on' | undefined
}

export type WriterReply =
  | { ready: true }
  | { id: number; rows: Record<string, unknown>[]; changes: number }
  | { id: number; error: SqliteFault }

/** What is left of an error when it crosses threads. */
export interface SqliteFault {
  message: string
  code?: string
  errcode?: number
}

if (parentPort) serve(parentPort, workerData as WriterOptions)

function serve(port: NonNullable<typeof parentPort>, options: WriterOptions): void {
  const db = new DatabaseSync(options.path, {
    enableForeignKeyConstraints: true,
    timeout: options.busyTimeoutMs,
  })
  db.exec(`pragma journal_mode = wal; pragma synchronous = ${options.sync};
    pragma wal_autocheckpoint = ${CHECKPOINT_PAGES}`)
  const statements = new StatementCache(db)
  const rest = setTimeout(() => checkpoint(db), REST_MS)
  port.on('message', (request: WriterRequest) => {
    rest.refresh()
    if ('close' in request) {
      clearTimeout(rest)
      db.close()
      port.close()
    } else {
      port.postMessage(answer(db, statements, request))
    }
  })
  port.postMessage({ ready: true } satisfies WriterReply)
}

function checkpoint(db: DatabaseSync): void {
  try {
    db.exec('pragma wal_checkpoint(passive)')
  } catch {
    // In the middle of a transaction, or the disk is full: there will be another rest.
  }
}

function answer(
  db: DatabaseSync,
  statements: StatementCache,
  { id, sql, parameters, transaction }: WriterStatement,
): WriterReply {
  try {
    if (transaction === 'begins') statements.run('begin immediate', [])
    if (transaction === 'goes on' && !db.isTransaction) throw new Error('The transaction did not begin')
    return { id, ...statements.run(sql, parameters) }
  } catch (error) {
    return { id, error: toFault(error) }
  }
}

function toFault(error: unknown): SqliteFault {
  if (!(error instanceof Error)) return { message: String(error) }
  const { code, errcode } = error as { code?: string; errcode?: number }
  return {
    message: error.message,
    ...(code !== undefined && { code }),
    ...(errcode !== undefined && { errcode }),
  }
}
