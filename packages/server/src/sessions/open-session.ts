import type { Owner } from '@ash-ai/sandbox'
import { AshError } from '@ash-ai/shared'
import type { Db } from '../db/open-db.ts'
import type { SessionDeps } from './session-deps.ts'
import { getSession, type SessionRow } from './session-queries.ts'

/** Throws where the session does not exist or has ended. */
export async function getOpenSession(db: Db, tenantId: string, sessionId: string): Promise<SessionRow> {
  const row = await getSession(db, tenantId, sessionId)
  if (row.status === 'ended') throw new AshError('session_ended', `Session ${sessionId} has ended`)
  return row
}

/** Throws where there is nobody in the session to talk to. */
export function assertAgent({ id, agent_name }: Pick<SessionRow, 'id' | 'agent_name'>): void {
  if (agent_name === null)
    throw new AshError('no_agent', `Session ${id} runs code and has no agent. Create one with an agent.`)
}

/** The same before a session is woken for a message. Of one that is live with an agent nothing is read. */
export async function assertTalks(deps: SessionDeps, tenantId: string, sessionId: string): Promise<void> {
  if (!deps.live.get(sessionId)?.hasAgent) assertAgent(await getOpenSession(deps.db, tenantId, sessionId))
}

/** Throws where the session is for one execution: it is neither paused nor used otherwise. */
export async function assertPersistent(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
): Promise<void> {
  if (deps.live.get(sessionId)?.mode === 'persistent') return
  const { mode, status } = await getSession(deps.db, tenantId, sessionId)
  if (mode === 'ephemeral' && status !== 'ended')
    throw new AshError('forbidden', 'An ephemeral session runs one execution; make a persistent one for that')
}

/** Host user of a session's files, where the server can switch users. */
export function ownerOf(row: SessionRow): Owner | undefined {
  return row.host_uid === null ? undefined : { uid: row.host_uid, gid: row.host_uid }
}

export const envAad = (tenantId: string, sessionId: string) => `session-env:${tenantId}:${sessionId}`
