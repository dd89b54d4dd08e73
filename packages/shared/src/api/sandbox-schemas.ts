import { z } from 'zod'
import { SANDBOX_STATES } from '../session-state.ts'
import { IsoTime, Paging } from './common-schemas.ts'
import { Limits } from './sandbox-settings.ts'

/** Also of interpreters without a bridge, which have no UUID for a name everywhere. */
export const SandboxId = z.string().regex(/^[A-Za-z0-9-]{1,64}$/, 'must be the id of a sandbox')

const SandboxUsage = z.object({
  cpuMs: z.number().describe('CPU time since it began'),
  memoryBytes: z.number().int(),
  peakMemoryBytes: z.number().int(),
  processes: z.number().int().describe('Processes and threads'),
  diskBytes: z.number().int().optional().describe('Workspace and home; absent where that would take a count'),
})

/** A live sandbox: a session's, or one that is kept ready. */
export const SandboxInfo = z
  .object({
    id: z.string(),
    state: z.enum(SANDBOX_STATES),
    provider: z.string(),
    isolation: z.string(),
    sessionId: z.string().optional().describe('Absent: it is kept ready for a session to come'),
    agentName: z.string().optional(),
    agentVersion: z.number().int().optional(),
    template: z.string().optional(),
    limits: Limits.optional().describe('In force; absent for one that is kept ready'),
    enforcement: z
      .object({ backend: z.string(), limits: z.record(z.string(), z.enum(['hard', 'polled', 'none'])) })
      .describe('What holds the limits, and how well'),
    usage: SandboxUsage.optional().describe(
      'Absent where nobody knows: it has just ended, or is not used yet',
    ),
    uptimeMs: z.number().int(),
    createdAt: IsoTime,
    lastUsedAt: IsoTime,
  })
  .meta({ id: 'Sandbox' })
export type SandboxInfo = z.infer<typeof SandboxInfo>

export const SandboxList = Paging.extend({
  session: z.uuid({ error: 'must be a UUID' }).optional().describe('Only that of this session'),
})

/** A line, or a few, of what a sandbox and its boundary said. */
export const LogLine = z
  .object({
    seq: z.number().int().describe('Of the entry of the log of the session'),
    type: z.string(),
    text: z.string().describe('One line, without its end'),
    time: IsoTime.optional().describe('Absent while following'),
  })
  .meta({ id: 'LogLine' })
export type LogLine = z.infer<typeof LogLine>

export const LogTail = z.object({
  tail: z.coerce.number().int().min(0).max(10_000).default(100).describe('How many of the last lines'),
  follow: z.stringbool().default(false).describe('Go on with server-sent events, a `line` each'),
})
