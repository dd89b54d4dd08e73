import { DEFAULT_RUN_TIMEOUT_MS, LANGUAGES, type Language, type Network, type Packages } from '@ash-ai/shared'

/** What executions in a session start from, whatever becomes of its template. */
export interface SessionRunSettings {
  /** That may be run; the first is the default. */
  languages: Language[]
  /** Of an execution that names none. */
  timeoutMs: number
  /** Program that runs the first language, where not the usual one. */
  runtime?: string | undefined
  /** Of the template and the session, beside those of the agent. */
  packages: Packages
  /** Under which they are installed. Absent: as the agent says. */
  installNetwork?: Network | undefined
  /** The session was made for one run: whenever that is begun anew, so are its files. */
  isSingle?: boolean
}

/** As stored with a session. One that is older than this has everything at its default. */
export function readRunSettings({ run_settings }: { run_settings: string }): SessionRunSettings {
  const stored = JSON.parse(run_settings) as Partial<SessionRunSettings>
  return { languages: [...LANGUAGES], timeoutMs: DEFAULT_RUN_TIMEOUT_MS, packages: {}, ...stored }
}
