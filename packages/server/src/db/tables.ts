import type { ExecutionStatus, Language, SandboxState, SessionMode, SessionStatus } from '@ash-ai/shared'

/**
 * The rows as both databases hold them: ids and JSON are text, times epoch milliseconds. Every row carries its
 * tenant, and every query names it.
 */
export interface Tables {
  agents: AgentsTable
  agent_versions: AgentVersionsTable
  sessions: SessionsTable
  session_events: SessionEventsTable
  turn_requests: TurnRequestsTable
  templates: TemplatesTable
  executions: ExecutionsTable
  checkpoints: CheckpointsTable
  sandboxes: SandboxesTable
  /** One row, of no tenant: names this database. */
  installation: { id: string }
  credentials: CredentialsTable
  api_keys: ApiKeysTable
}

interface AgentsTable {
  tenant_id: string
  name: string
  /** The newest version. */
  version: number
  created_at: number
  updated_at: number
}

/** Immutable once written. */
export interface AgentVersionsTable {
  tenant_id: string
  agent_name: string
  version: number
  content_hash: string
  files: number
  bytes: number
  /** AgentOptions as JSON. */
  config: string
  /** The environment, sealed by SecretBox. */
  env_sealed: string
  created_at: number
}

export interface SessionsTable {
  id: string
  tenant_id: string
  /** Null: it runs code only. */
  agent_name: string | null
  agent_version: number | null
  /** Null: an agent that names none. */
  template: string | null
  mode: SessionMode
  /** What a client of a dialect calls it; no other session of the tenant has the same. */
  external_id: string | null
  /** Whom it is for; at most one open session of a template for each. */
  agent_id: string | null
  /** SessionRunSettings as JSON: what executions in it start from. */
  run_settings: string
  /** Null: as the server is configured. */
  idle_timeout_ms: number | null
  lifetime_ms: number | null
  status: SessionStatus
  provider: string
  isolation: string
  config: string
  /** In force for the session, as JSON. */
  limits: string
  network: string
  budget: string
  /** Names of the credentials it may use, as a JSON list. */
  credentials: string
  /** CheckpointSettings as JSON. */
  checkpoint_settings: string
  /** 1 or 0. */
  auto_resume: number
  /** It was forked: the entries up to `fork_seq` are those of the parent. */
  parent_session_id: string | null
  fork_seq: number | null
  /** The files descend from this checkpoint. */
  checkpoint_id: string | null
  /** 1: what is on disk, if anything, is not the session's; the checkpoint has to be restored before use. */
  files_pending: number
  /** What the session has used of the model, as JSON; null before the first request. */
  model_usage: string | null
  env_sealed: string
  sdk_session_id: string | null
  /** The host that may write to this session, at this epoch. */
  owner_id: string
  epoch: number
  /** Uid of the sandbox on its owner; null once the session no longer needs it. */
  host_uid: number | null
  sandbox_id: string | null
  error_code: string | null
  error_message: string | null
  created_at: number
  last_active_at: number
  ended_at: number | null
}

interface SessionEventsTable {
  tenant_id: string
  session_id: string
  seq: number
  type: string
  turn_id: string | null
  data: string
  created_at: number
  /** Length of all `data` of the session up to here; null in entries older than the column. */
  total_chars: number | null
}

/** A message that waits for its turn, or whose sender named a key; other turns are only in the log. */
export interface TurnRequestsTable {
  tenant_id: string
  session_id: string
  turn_id: string
  /** `cancelled` waits too: for its place in the log, where its end is told. */
  status: 'queued' | 'cancelled' | 'begun'
  /** Order in the queue. */
  position: number
  /** MessageSend as JSON while it waits. */
  message: string | null
  idempotency_key: string | null
  /** Of the request that brought the key: another one may not use it. */
  request_hash: string | null
  created_at: number
}

/** Immutable but for `uploaded_at`. */
export interface CheckpointsTable {
  id: string
  tenant_id: string
  session_id: string
  /** The host whose store has it. */
  owner_id: string
  /** The last entry of the log that it covers. */
  seq: number
  turn_id: string | null
  reason: 'turn' | 'pause' | 'request' | 'fork' | 'rollback' | 'upload'
  /** Hash of the manifest. */
  manifest: string
  files: number
  bytes: number
  /** What a session needs beside its files to be made anew, as JSON; nothing secret. */
  settings: string
  sdk_session_id: string | null
  /** Null while the remote store does not have it: the list of what is to be uploaded. */
  uploaded_at: number | null
  created_at: number
}

/** What is alive on a host. `last_used_at` and a change between `waiting` and `running` are stored a moment later. */
interface SandboxesTable {
  id: string
  tenant_id: string
  owner_id: string
  /** Null for a warm spare. */
  session_id: string | null
  agent_name: string | null
  agent_version: number | null
  template: string | null
  state: SandboxState
  created_at: number
  last_used_at: number
}

export interface TemplatesTable {
  tenant_id: string
  name: string
  /** TemplateSettings as JSON, without `env`. */
  settings: string
  /** Sealed by SecretBox. */
  env_sealed: string
  /** Grows with every change. */
  version: number
  created_at: number
  updated_at: number
}

/** Output is in the log, as entries of the session with the id of the execution as their turn. */
export interface ExecutionsTable {
  id: string
  tenant_id: string
  session_id: string
  /** The host that runs it. */
  owner_id: string
  status: ExecutionStatus
  language: Language
  kind: 'code' | 'script' | 'handler'
  kernel: string | null
  code: string
  /** Sealed: event, context and env of the run, until it has finished. */
  input_sealed: string | null
  /** Of the whole reply: 1 where an attempt that crashed is followed by another. */
  retries: number
  timeout_ms: number
  attempt: number
  path: 'reuse' | 'warm' | 'cold' | null
  is_new_kernel: number | null
  /** JSON text. Null where there is none; the text `null` is a result. */
  result: string | null
  results: string | null
  error: string | null
  exit_code: number | null
  signal: string | null
  truncated: number
  artifacts: string | null
  artifacts_complete: number
  /** The files themselves are kept on the owner until then; null where there are none, or no longer. */
  artifacts_until: number | null
  /** Of those that are kept. */
  artifacts_bytes: number | null
  metrics: string | null
  idempotency_key: string | null
  request_hash: string | null
  created_at: number
  started_at: number | null
  finished_at: number | null
}

export interface CredentialsTable {
  tenant_id: string
  name: string
  /** A JSON list, as `formatCredentialHost` writes each. */
  hosts: string
  /** CredentialScheme as JSON. */
  scheme: string
  /** Sealed by SecretBox together with hosts and scheme: changed, it does not open. */
  secret_sealed: string
  created_at: number
  updated_at: number
}

export interface ApiKeysTable {
  id: string
  tenant_id: string
  /** SHA-256 of the key, hex. */
  key_hash: string
  label: string
  created_at: number
}
