import type { Owner } from '@ash-ai/sandbox'
import { AshError } from '@ash-ai/shared'
import type { Db } from '../db/open-db.ts'
import { getSession, type SessionRow } from './session-queries.ts'

/** Throws where the session does not exist or has ended. */
export async function getOpenSession(db: Db, tenantId: string, sessionId: string): Promise<SessionRow> {
  const row = await getSession(db, tenantId, sessionId)
  if (row.status === 'ended') throw new AshError('session_ended', `Session ${sessionId} has ended`)
  return row
}

/** Host user of a session's files, where the server can switch users. */
export function ownerOf(row: SessionRow): Owner | undefined {
  return row.host_uid === null ? undefined : { uid: row.host_uid, gid: row.host_uid }
}

export const envAad = (tenantId: string, sessionId: string) => `session-env:${tenantId}:${sessionId}`
