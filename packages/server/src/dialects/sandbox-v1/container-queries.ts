import { AshError, type OutputEventData, type SandboxState } from '@ash-ai/shared'
import { sql } from 'kysely'
import type { Db } from '../../db/open-db.ts'

export interface ContainerRow {
  id: string
  owner_id: string
  session_id: string | null
  external_id: string | null
  template: string | null
  /** Of its session, as JSON; null for a spare. */
  limits: string | null
  state: SandboxState
  created_at: number
}

const of = (db: Db, tenantId: string) =>
  db
    .selectFrom('sandboxes')
    .leftJoin('sessions', 'sessions.id', 'sandboxes.session_id')
    .select([
      'sandboxes.id',
      'sandboxes.owner_id',
      'sandboxes.session_id',
      'sandboxes.template',
      'sandboxes.state',
      'sandboxes.created_at',
      'sessions.limits',
      sql.ref<string | null>('sessions.external_id').as('external_id'),
    ])
    .where('sandboxes.tenant_id', '=', tenantId)

/** Newest first. */
export async function listContainers(
  db: Db,
  tenantId: string,
  { states, limit, offset }: { states: readonly SandboxState[]; limit: number; offset: number },
): Promise<{ rows: ContainerRow[]; total: number }> {
  if (states.length === 0) return { rows: [], total: 0 }
  const { total } = await db
    .selectFrom('sandboxes')
    .select(({ fn }) => fn.countAll<string | number>().as('total'))
    .where('tenant_id', '=', tenantId)
    .where('state', 'in', states)
    .executeTakeFirstOrThrow()
  const rows = await of(db, tenantId)
    .where('sandboxes.state', 'in', states)
    .orderBy('sandboxes.created_at', 'desc')
    .orderBy('sandboxes.id', 'desc')
    .limit(limit)
    .offset(offset)
    .execute()
  return { rows, total: Number(total) }
}

export async function getContainer(db: Db, tenantId: string, id: string): Promise<ContainerRow> {
  const row = await of(db, tenantId).where('sandboxes.id', '=', id).executeTakeFirst()
  if (!row) throw new AshError('session_not_found', `There is no container ${id}`)
  return row
}

const ENTRIES_AT_ONCE = 16
const MAX_LOG_CHARS = 1024 * 1024

/** The last lines of what a session and what ran in it said, at most about a megabyte. */
export async function readLog(
  db: Db,
  tenantId: string,
  sessionId: string,
  { tail, since }: { tail: number; since: number },
): Promise<string> {
  let text = ''
  for (let before = Number.MAX_SAFE_INTEGER; ; ) {
    const entries = await db
      .selectFrom('session_events')
      .select(['seq', 'type', 'data'])
      .where('tenant_id', '=', tenantId)
      .where('session_id', '=', sessionId)
      .where('type', 'in', ['log', 'output'])
      .where('created_at', '>=', since)
      .where('seq', '<', before)
      .orderBy('seq', 'desc')
      .limit(ENTRIES_AT_ONCE)
      .execute()
    text =
      entries
        .map(({ type, data }) => textOf(type, data))
        .reverse()
        .join('') + text
    before = entries.at(-1)?.seq ?? 0
    const isEnough = text.length > MAX_LOG_CHARS || text.split('\n').length > tail
    if (entries.length < ENTRIES_AT_ONCE || isEnough) return lastLines(text.slice(-MAX_LOG_CHARS), tail)
  }
}

/** Notes of the server are lines; output is passed on as it was written. */
function textOf(type: string, data: string): string {
  const { text } = JSON.parse(data) as Partial<OutputEventData>
  return type === 'output' ? (text ?? '') : `[ash] ${text ?? ''}\n`
}

function lastLines(text: string, count: number): string {
  const lines = text.replace(/\n$/, '').split('\n')
  return text === '' ? '' : `${lines.slice(-count).join('\n')}\n`
}
