import { setImmediate as letOthersRun } from 'node:timers/promises'
import type { Db } from '../db/open-db.ts'
import { type Entry, type EventPage, hasEvents, listEvents, PAGE_MAX_CHARS } from './event-queries.ts'

/**
 * A stretch of a log, and the session that wrote it. A fork copies nothing: its log is what its parent had
 * written up to the fork, which the parent may itself have taken over, and then its own entries.
 */
export interface Segment {
  sessionId: string
  fromSeq: number
  /** Infinity for the session's own, which grows. */
  toSeq: number
}

/** A session, and the last place of its log that it took over: 0 where it is no fork. */
interface ForkedLog {
  tenantId: string
  sessionId: string
  forkSeq: number
}

/**
 * Where the entries after a place are stored, in order. What was written before a fork never changes, so
 * the answer stays true. It takes a query only where something of another session is asked for.
 */
export async function findLineage(db: Db, log: ForkedLog, after: number): Promise<Segment[]> {
  const { sessionId, forkSeq } = log
  const own = { sessionId, fromSeq: forkSeq + 1, toSeq: Number.POSITIVE_INFINITY }
  return after >= forkSeq ? [own] : [...(await findInherited(db, log, after)), own]
}

async function findInherited(db: Db, log: ForkedLog, after: number): Promise<Segment[]> {
  const forks = new Map((await listAncestry(db, log, after)).map((row) => [row.id, row]))
  const segments: Segment[] = []
  let toSeq = log.forkSeq
  let child = take(forks, log.sessionId)
  while (child) {
    const parent = take(forks, child.parent_session_id)
    if (!parent) break
    const forkSeq = parent.fork_seq ?? 0
    // One that was forked before it wrote anything has no part in it.
    if (forkSeq < toSeq) segments.push({ sessionId: parent.id, fromSeq: forkSeq + 1, toSeq })
    toSeq = Math.min(toSeq, forkSeq)
    child = parent
  }
  return segments.reverse()
}

/** Each at most once: rows that went round in a circle would come to an end. */
function take<Row>(rows: Map<string, Row>, id: string | null): Row | undefined {
  const row = id === null ? undefined : rows.get(id)
  if (id !== null) rows.delete(id)
  return row
}

/** The session, its parent, the parent's parent, as far back as `after`. `union` drops what it has seen before. */
async function listAncestry(db: Db, { tenantId, sessionId }: ForkedLog, after: number) {
  return db
    .withRecursive('ancestry', (query) =>
      query
        .selectFrom('sessions')
        .select(['id', 'parent_session_id', 'fork_seq'])
        .where('tenant_id', '=', tenantId)
        .where('id', '=', sessionId)
        .union(
          query
            .selectFrom('ancestry')
            .innerJoin('sessions', 'sessions.id', 'ancestry.parent_session_id')
            .select(['sessions.id', 'sessions.parent_session_id', 'sessions.fork_seq'])
            .where('sessions.tenant_id', '=', tenantId)
            .where('ancestry.fork_seq', '>', after),
        ),
    )
    .selectFrom('ancestry')
    .selectAll()
    .execute()
}

/** Entries of a log after a place, in order: at most `limit` and a few megabytes, at least one if there is any. */
export async function listLogEvents(
  db: Db,
  tenantId: string,
  lineage: readonly Segment[],
  page: EventPage,
): Promise<Entry[]> {
  const entries: Entry[] = []
  let charsLeft = PAGE_MAX_CHARS
  for await (const { sessionId, part } of partsAfter(lineage, page)) {
    const limit = page.limit - entries.length
    const found = await listEvents(db, tenantId, sessionId, { ...part, limit }, charsLeft)
    entries.push(...found)
    charsLeft -= found.reduce((chars, { data }) => chars + data.length, 0)
    if (found.length === limit || charsLeft <= 0) break
    // Fewer than asked for: all there are, or all that have room.
    const last = found.at(-1)?.seq
    if (last === undefined || last === part.upTo) continue
    const isLast = part.upTo === undefined
    if (isLast || (await hasEvents(db, tenantId, sessionId, { ...part, after: last }))) break
  }
  return entries
}

export async function hasLogEvents(
  db: Db,
  tenantId: string,
  lineage: readonly Segment[],
  page: Omit<EventPage, 'limit'>,
): Promise<boolean> {
  for await (const { sessionId, part } of partsAfter(lineage, page)) {
    if (await hasEvents(db, tenantId, sessionId, part)) return true
  }
  return false
}

/** What a page means for each segment that it may touch. */
async function* partsAfter<Page extends Omit<EventPage, 'limit'>>(lineage: readonly Segment[], page: Page) {
  const touched = lineage.filter(({ toSeq }) => toSeq > page.after)
  for (const [index, { sessionId, fromSeq, toSeq }] of touched.entries()) {
    // SQLite reads on this thread: a long chain of forks must not keep everybody else waiting.
    if (index > 0) await letOthersRun()
    const upTo = toSeq === Number.POSITIVE_INFINITY ? page.upTo : Math.min(toSeq, page.upTo ?? toSeq)
    yield { sessionId, part: { ...page, after: Math.max(page.after, fromSeq - 1), upTo } }
  }
}
