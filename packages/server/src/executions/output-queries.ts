import type { ExecutionEventData, ExecutionStatus, OutputEventData } from '@ash-ai/shared'
import { sql } from 'kysely'
import type { Db } from '../db/open-db.ts'
import type { ExecutionRow } from './execution-queries.ts'

/** An `output` entry; of another attempt than the first it says which. */
export type OutputEntry = OutputEventData & { attempt?: number }

export interface Output {
  stdout: string
  stderr: string
}

/** Entries of at most 64 KB each. */
const PAGE_ENTRIES = 64

/** What the last attempt of an execution wrote, out of the log of its session. */
export async function readOutput(
  db: Db,
  row: Pick<ExecutionRow, 'tenant_id' | 'session_id' | 'id' | 'attempt'>,
): Promise<Output> {
  const output: Output = { stdout: '', stderr: '' }
  for (let after = 0; ; ) {
    const entries = await listOutput(db, row, after)
    for (const { data } of entries) {
      const entry = JSON.parse(data) as OutputEntry
      if ((entry.attempt ?? 1) === row.attempt) output[entry.stream] += entry.text
    }
    if (entries.length < PAGE_ENTRIES) return output
    after = entries.at(-1)?.seq ?? after
  }
}

function listOutput(
  db: Db,
  row: Pick<ExecutionRow, 'tenant_id' | 'session_id' | 'id'>,
  after: number,
): Promise<{ seq: number; data: string }[]> {
  return (
    db
      .selectFrom('session_events')
      .select(['seq', 'data'])
      .where('tenant_id', '=', row.tenant_id)
      .where('session_id', '=', row.session_id)
      .where('turn_id', '=', row.id)
      // A literal: only then the index over output is used.
      .where('type', '=', sql.lit('output'))
      .where('seq', '>', after)
      .orderBy('seq')
      .limit(PAGE_ENTRIES)
      .execute()
  )
}

/** Place of the first entry that an execution has in the log, if it has any. */
export async function findFirstEntry(db: Db, row: ExecutionOf): Promise<number | undefined> {
  const entry = await entriesOf(db, row).select('seq').orderBy('seq').limit(1).executeTakeFirst()
  return entry?.seq
}

/** What the log says last about an execution, if anything. */
export async function findLastStatus(db: Db, row: ExecutionOf): Promise<ExecutionStatus | undefined> {
  const entry = await entriesOf(db, row).select('data').orderBy('seq', 'desc').limit(1).executeTakeFirst()
  return entry && (JSON.parse(entry.data) as ExecutionEventData).status
}

type ExecutionOf = Pick<ExecutionRow, 'tenant_id' | 'session_id' | 'id'>

const entriesOf = (db: Db, row: ExecutionOf) =>
  db
    .selectFrom('session_events')
    .where('tenant_id', '=', row.tenant_id)
    .where('session_id', '=', row.session_id)
    .where('turn_id', '=', row.id)
    // A literal: only then the index over them is used.
    .where('type', '=', sql.lit('execution'))
