import type { ExecuteRequest, ExecutionSummary, Session } from '@ash-ai/shared'
import type { Output } from '../../executions/output-queries.ts'

/** A session as the answer to its making. The provider is the real one. */
export const toMade = ({ id, sandboxId, provider }: Session, url: string | null) => ({
  session_id: id,
  sandbox_id: sandboxId ?? null,
  provider,
  status: 'running',
  url,
})

/** `state` and `agentConfig` are what is written in its files. */
export const toState = (
  { id, provider, ...session }: Session,
  { state, agentConfig }: { state: unknown; agentConfig: unknown },
) => ({
  session_id: id,
  provider,
  state,
  status: STATUSES[session.status],
  agent_config: agentConfig,
  environment: session.template ?? null,
  sandbox_id: session.sandboxId ?? null,
  sandbox_state: session.sandboxState,
  isolation: session.isolation,
  created_at: session.createdAt,
  last_active_at: session.lastActiveAt,
})

const STATUSES: Record<Session['status'], string> = {
  starting: 'starting',
  active: 'active',
  // The next call wakes it.
  paused: 'active',
  error: 'error',
  ended: 'deleted',
}

const LANGUAGES: Partial<Record<string, ExecuteRequest['language']>> = {
  python: 'python',
  python3: 'python',
  javascript: 'javascript',
  js: 'javascript',
  node: 'javascript',
  shell: 'shell',
  bash: 'shell',
}

/** Undefined for one that is not known. */
export const toLanguage = (name: string) => LANGUAGES[name.toLowerCase()]

interface RichResult {
  isValue: boolean
  data: Record<string, unknown>
}

/** `results` is JSON text, as stored. */
export const toOutcome = (
  { error, artifacts }: ExecutionSummary,
  { stdout, stderr }: Output,
  results: string | null,
) => ({
  stdout,
  stderr,
  error: error ? { name: error.name, value: error.message, traceback: error.traceback ?? '' } : null,
  results: results === null ? [] : (JSON.parse(results) as RichResult[]).map(toResult),
  artifacts: artifacts.map(({ path }) => path),
})

const NAMES: Partial<Record<string, string>> = {
  'text/plain': 'text',
  'text/html': 'html',
  'text/markdown': 'markdown',
  'text/latex': 'latex',
  'image/svg+xml': 'svg',
  'image/png': 'png',
  'image/jpeg': 'jpeg',
  'application/pdf': 'pdf',
  'application/json': 'json',
  'application/javascript': 'javascript',
}

/** By short names; what has none keeps its media type. */
const toResult = ({ isValue, data }: RichResult) => ({
  ...Object.fromEntries(Object.entries(data).map(([type, value]) => [NAMES[type] ?? type, value])),
  is_main_result: isValue,
})
