import { randomUUID } from 'node:crypto'
import type { ExecutionRow } from '../execution-queries.ts'

/** An execution row as it is accepted, with whatever a test wants different. */
export function executionRow(change: Partial<ExecutionRow> = {}): ExecutionRow {
  return {
    id: randomUUID(),
    tenant_id: 'default',
    session_id: randomUUID(),
    owner_id: 'host-a',
    status: 'pending',
    language: 'python',
    kind: 'script',
    kernel: null,
    code: '1',
    input_sealed: null,
    retries: 1,
    timeout_ms: 1000,
    attempt: 1,
    path: null,
    is_new_kernel: null,
    result: null,
    results: null,
    error: null,
    exit_code: null,
    signal: null,
    truncated: 0,
    artifacts: null,
    artifacts_complete: 1,
    artifacts_until: null,
    artifacts_bytes: null,
    metrics: null,
    idempotency_key: null,
    request_hash: null,
    created_at: Date.now(),
    started_at: null,
    finished_at: null,
    ...change,
  }
}
