import type { SessionRow } from '../sessions/session-queries.ts'

const KEPT = [
  'agent_name',
  'agent_version',
  'template',
  'mode',
  'run_settings',
  'idle_timeout_ms',
  'lifetime_ms',
  'config',
  'limits',
  'network',
  'budget',
  'credentials',
  'checkpoint_settings',
  'auto_resume',
] as const

/** What a session is beside its files and its conversation. Its environment is not among it: that stays sealed. */
type SessionSettings = Pick<SessionRow, (typeof KEPT)[number]>

export const settingsOf = (row: SessionRow): SessionSettings =>
  Object.fromEntries(KEPT.map((name) => [name, row[name]])) as SessionSettings
