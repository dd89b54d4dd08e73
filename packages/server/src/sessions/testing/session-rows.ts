import { randomUUID } from 'node:crypto'
import type { SessionRow } from '../session-queries.ts'

/** A session row as the lifecycle writes it, with whatever a test wants different. */
export function sessionRow(change: Partial<SessionRow> = {}): SessionRow {
  const now = Date.now()
  return {
    id: randomUUID(),
    tenant_id: 'default',
    agent_name: 'agent',
    agent_version: 1,
    template: null,
    mode: 'persistent',
    external_id: null,
    agent_id: null,
    run_settings: '{}',
    idle_timeout_ms: null,
    lifetime_ms: null,
    status: 'starting',
    provider: 'bwrap',
    isolation: 'bwrap',
    config: '{}',
    limits: '{}',
    network: '"none"',
    budget: '{}',
    credentials: '[]',
    checkpoint_settings: '{}',
    auto_resume: 1,
    parent_session_id: null,
    fork_seq: null,
    checkpoint_id: null,
    files_pending: 0,
    model_usage: null,
    env_sealed: '',
    sdk_session_id: null,
    owner_id: 'host-a',
    epoch: 1,
    host_uid: null,
    sandbox_id: null,
    error_code: null,
    error_message: null,
    created_at: now,
    last_active_at: now,
    ended_at: null,
    ...change,
  }
}
