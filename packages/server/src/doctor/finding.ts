import type { SandboxProvider } from '@ash-ai/sandbox'

/** What one check found: `fail` keeps sandboxes from running, `warn` leaves them with less than there could be. */
export interface Verdict {
  status: 'ok' | 'warn' | 'fail'
  detail: string
  /** A command or setting that mends it. */
  fix?: string
}

export interface Finding extends Verdict {
  id: string
  title: string
}

/** What this machine can give. Holds no secrets: it is made to be pasted into a bug report. */
export interface Diagnosis {
  findings: Finding[]
  summary: {
    /** What would stand between an agent and the host, with these settings on this machine. */
    isolation: SandboxProvider['isolation']
    limits: LimitsReport
    canRunSandboxes: boolean
  }
}

export type LimitsReport = SandboxProvider['limits']

export const ok = (detail: string): Verdict => ({ status: 'ok', detail })
export const warn = (detail: string, fix?: string): Verdict => verdict('warn', detail, fix)
export const fail = (detail: string, fix?: string): Verdict => verdict('fail', detail, fix)

export const isRoot = () => process.getuid?.() === 0

/** The message of whatever was thrown; Node leaves some without one and has only a code. */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return error.message || ('code' in error ? String(error.code) : error.name)
}

function verdict(status: Verdict['status'], detail: string, fix: string | undefined): Verdict {
  return { status, detail, ...(fix !== undefined && { fix }) }
}
