import type { SessionStatus } from '@ash-ai/shared'

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
  agent_name: string
  agent_version: number
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
