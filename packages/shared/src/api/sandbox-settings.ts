import { z } from 'zod'
import { AgentOptions } from './agent-options.ts'

/** What a sandbox may use. An operator's settings are the default and the most that can be asked for. */
export const Limits = z
  .strictObject({
    memoryMb: z.number().int().min(128),
    cpus: z.number().min(0.05),
    processes: z.number().int().min(32).describe('Processes and threads'),
    openFiles: z.number().int().min(64),
    fileSizeMb: z.number().int().min(1).describe('The largest single file'),
  })
  .meta({ id: 'Limits' })
export type Limits = z.infer<typeof Limits>

/** Options of the agent SDK, and what Ash itself decides for a sandbox. */
export const AgentConfig = AgentOptions.extend({ limits: Limits.partial().optional() })
export type AgentConfig = z.infer<typeof AgentConfig>

/** The part of a configuration that reaches the agent SDK. */
export function sdkOptions({ limits: _limits, ...options }: AgentConfig): AgentOptions {
  return options
}
