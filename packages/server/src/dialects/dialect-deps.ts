import type { ExecutionDeps } from '../executions/executions.ts'
import type { SessionFiles } from '../files/session-files.ts'
import type { PreviewServer } from '../previews/preview-server.ts'

/** What every dialect stands on: the core, and nothing of its own. */
export interface DialectDeps {
  sessions: ExecutionDeps
  files: SessionFiles
  /** Undefined: sandboxes have no addresses. */
  previews?: Pick<PreviewServer, 'base' | 'linkKey'> | undefined
  version: string
}
