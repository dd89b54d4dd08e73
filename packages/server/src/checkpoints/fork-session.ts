import { randomUUID } from 'node:crypto'
import { AshError } from '@ash-ai/shared'
import { envAad, getOpenSession } from '../sessions/open-session.ts'
import { insertWithUid } from '../sessions/session-create.ts'
import type { SessionDeps } from '../sessions/session-deps.ts'
import { fenceOf, type SessionRow } from '../sessions/session-queries.ts'
import { type CheckpointRow, getCheckpoint, insertCheckpoint } from './checkpoint-queries.ts'
import { nextMs } from './save-checkpoint.ts'
import { settingsOf } from './session-settings.ts'
import { currentCheckpoint } from './take-checkpoint.ts'

/**
 * A new session, paused, that begins as another was at a checkpoint: with its conversation and its files. It may do
 * what the other may do now, which can be less than it was. Nothing is copied: the log up to there is read from the parent's, the files appear with their first use.
 */
export async function forkSession(
  deps: SessionDeps,
  tenantId: string,
  sessionId: string,
  checkpointId: string | undefined,
): Promise<SessionRow> {
  const parent = await getOpenSession(deps.db, tenantId, sessionId)
  const from =
    checkpointId === undefined
      ? await currentCheckpoint(deps, parent, 'fork')
      : await getCheckpoint(deps.db, tenantId, sessionId, checkpointId)
  if (!from)
    throw new AshError('no_checkpoint', `Session ${sessionId} has no checkpoint to fork from. Pause it once.`)
  return deps.checkpoints.shared(tenantId, async () => {
    // Still there: else a sweep may have taken what it refers to.
    await getCheckpoint(deps.db, tenantId, sessionId, from.id)
    const own: CheckpointRow = {
      ...from,
      settings: JSON.stringify(settingsOf(parent)),
      id: randomUUID(),
      session_id: randomUUID(),
      reason: 'fork',
      // Not taken over: what the parent has uploaded is safe only as long as the parent's row is there.
      uploaded_at: null,
      created_at: nextMs(),
    }
    const row = forkRow(deps, parent, own)
    // A checkpoint of its own, with the same files: the fork needs nothing of the parent's any more.
    const fork = await insertWithUid(deps, row, (db) => insertCheckpoint(db, fenceOf(row), own))
    deps.uploads?.wake()
    return fork
  })
}

function forkRow(deps: SessionDeps, parent: SessionRow, from: CheckpointRow): SessionRow {
  const id = from.session_id
  const now = Date.now()
  const env = deps.secrets.open(parent.env_sealed, envAad(parent.tenant_id, parent.id))
  return {
    ...parent,
    id,
    // Whom the parent is for has one open session, and that is the parent.
    agent_id: null,
    external_id: null,
    status: 'paused',
    provider: deps.provider.name,
    isolation: deps.provider.isolation,
    parent_session_id: parent.id,
    fork_seq: from.seq,
    checkpoint_id: from.id,
    files_pending: 1,
    sdk_session_id: from.sdk_session_id,
    // Sealed for one session, so sealed anew for the other.
    env_sealed: deps.secrets.seal(env, envAad(parent.tenant_id, id)),
    model_usage: null,
    owner_id: deps.hostId,
    epoch: 1,
    host_uid: null,
    sandbox_id: null,
    error_code: null,
    error_message: null,
    created_at: now,
    last_active_at: now,
    ended_at: null,
  }
}
