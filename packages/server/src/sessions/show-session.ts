import type { Session } from '@ash-ai/shared'
import type { SecretBox } from '../db/secret-box.ts'
import { isAwake } from './live-sessions.ts'
import { envAad } from './open-session.ts'
import type { SessionDeps } from './session-deps.ts'
import { type SessionRow, toSession } from './session-queries.ts'

/** A session as clients see it: with what its sandbox is at, and the names of its variables. */
export function showSession(deps: SessionDeps, stored: SessionRow): Session {
  const { secrets, pool, live, idleTimeoutMs } = deps
  const here = stored.status === 'paused' ? live.get(stored.id) : undefined
  // It was woken, which is stored in a moment.
  const row = here && isAwake(here) ? { ...stored, status: 'active' as const } : stored
  const env = maskedEnv(secrets, row)
  // Which sandbox it is to have, its row says only when it has it.
  if (row.status === 'starting') return toSession(row, { env, idleTimeoutMs, sandboxState: 'warming' })
  const state = row.sandbox_id === null ? undefined : pool.stateOf(row.sandbox_id)
  return toSession(row, { env, idleTimeoutMs, sandboxState: state ?? 'cold' })
}

const MAX_REMEMBERED = 1_000
/** Names of variables by the sealed environment, which never changes: to open it takes longer than all the rest. */
const namesOf = new Map<string, string[]>()

function maskedEnv(secrets: SecretBox, { env_sealed, tenant_id, id }: SessionRow): Record<string, '***'> {
  let names = namesOf.get(env_sealed)
  if (!names) {
    names = Object.keys(secrets.open(env_sealed, envAad(tenant_id, id)) as object)
    if (namesOf.size >= MAX_REMEMBERED) namesOf.clear()
    namesOf.set(env_sealed, names)
  }
  return Object.fromEntries(names.map((name) => [name, '***']))
}
