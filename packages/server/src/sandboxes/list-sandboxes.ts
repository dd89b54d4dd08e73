import { AshError } from '@ash-ai/shared'
import type { Selectable } from 'kysely'
import { parseCursor, toPage } from '../db/newest-first.ts'
import type { Db } from '../db/open-db.ts'
import type { Tables } from '../db/tables.ts'

export type StoredSandbox = Selectable<Tables['sandboxes']>

interface SandboxPage {
  session?: string | undefined
  limit: number
  cursor?: string | undefined
}

/** Those of a tenant, the newest first. */
export async function listSandboxes(
  db: Db,
  tenantId: string,
  { session, limit, cursor }: SandboxPage,
): Promise<{ rows: StoredSandbox[]; nextCursor: string | undefined }> {
  let query = db.selectFrom('sandboxes').selectAll().where('tenant_id', '=', tenantId)
  if (session !== undefined) query = query.where('session_id', '=', session)
  if (cursor !== undefined) {
    const { createdAt, id } = parseCursor(cursor)
    query = query.where((where) =>
      where.or([
        where('created_at', '<', createdAt),
        where.and([where('created_at', '=', createdAt), where('id', '<', id)]),
      ]),
    )
  }
  const ordered = query.orderBy('created_at', 'desc').orderBy('id', 'desc')
  const rows = await ordered.limit(limit + 1).execute()
  return toPage(rows, limit)
}

/** Throws `sandbox_not_found`. */
export async function getSandbox(db: Db, tenantId: string, id: string): Promise<StoredSandbox> {
  const row = await db
    .selectFrom('sandboxes')
    .selectAll()
    .where('tenant_id', '=', tenantId)
    .where('id', '=', id)
    .executeTakeFirst()
  if (row) return row
  throw new AshError('sandbox_not_found', `There is no sandbox ${id}`)
}
