import type { Session } from '@ash-ai/shared'
import { envAad } from './open-session.ts'
import type { SessionDeps } from './session-deps.ts'
import { type SessionRow, toSession } from './session-queries.ts'

/** A session as clients see it: with what its sandbox is at, and the names of its variables. */
export function showSession({ secrets, pool }: SessionDeps, row: SessionRow): Session {
  const env = secrets.open(row.env_sealed, envAad(row.tenant_id, row.id)) as Record<string, string>
  const state = row.sandbox_id === null ? undefined : pool.stateOf(row.sandbox_id)
  return toSession(row, env, state ?? 'cold')
}
