import { z } from 'zod'
import { AgentOptions } from './agent-options.ts'
import { CredentialName } from './credential-schemas.ts'

/** What a sandbox may use. An operator's settings are the default and the most that can be asked for. */
export const Limits = z
  .strictObject({
    memoryMb: z.number().int().min(128),
    cpus: z.number().min(0.05),
    processes: z.number().int().min(32).describe('Processes and threads'),
    openFiles: z.number().int().min(64),
    fileSizeMb: z.number().int().min(1).describe('The largest single file'),
    diskMb: z.number().int().min(32).describe('Workspace and home together'),
    outputMbPerSecond: z
      .number()
      .int()
      .min(1)
      .describe(
        'What a sandbox may send its host, on top of a burst of 8 s; more comes slower, none is lost',
      ),
  })
  .meta({ id: 'Limits' })
export type Limits = z.infer<typeof Limits>

/** What a sandbox may reach: nothing, everything public, or the hosts named. */
export const Network = z
  .union([z.enum(['none', 'open']), z.array(z.string().min(1).max(300)).max(1000)])
  .describe('"none", "open", or hosts: host, *.host, host:port. Without a port: 80 and 443')
  .meta({ id: 'Network' })
export type Network = z.infer<typeof Network>

/** What a session may spend on the model, in all. */
export const BudgetLimits = z
  .strictObject({
    maxTokens: z.number().int().min(1).optional().describe('Read and written, cached ones too'),
    maxUsd: z.number().positive().optional(),
  })
  .meta({ id: 'Budget' })
export type BudgetLimits = z.infer<typeof BudgetLimits>

/** What the model was asked for, as the model proxy counted it. */
export const ModelUsage = z
  .object({
    requests: z.number().int(),
    inputTokens: z.number().int(),
    outputTokens: z.number().int(),
    cacheCreationTokens: z.number().int(),
    cacheReadTokens: z.number().int(),
    usd: z.number().describe('By the price table; requests to models without a price are left out'),
  })
  .meta({ id: 'ModelUsage' })
export type ModelUsage = z.infer<typeof ModelUsage>

/** When the files of a session are saved, and for how long. */
export const CheckpointSettings = z
  .strictObject({
    every: z
      .enum(['turn', 'pause'])
      .optional()
      .describe('`turn` (default): after each turn, and when it pauses. `pause`: only when it pauses'),
    keep: z
      .number()
      .int()
      .min(1)
      .max(100_000)
      .optional()
      .describe('The newest so many; default ASH_RETENTION_CHECKPOINTS'),
    keepDays: z.number().positive().max(36_500).optional().describe('Not older; default ASH_RETENTION_DAYS'),
  })
  .meta({ id: 'CheckpointSettings' })
export type CheckpointSettings = z.infer<typeof CheckpointSettings>

/** What Ash itself decides for a sandbox. */
const SandboxSettings = z.strictObject({
  limits: Limits.partial().optional(),
  network: Network.optional(),
  budget: BudgetLimits.optional(),
  credentials: z
    .array(CredentialName)
    .max(20)
    .optional()
    .describe('Names of credentials that may be used, at http://<name>.credentials.ash/. Default: none'),
  checkpoints: CheckpointSettings.optional(),
  autoResume: z
    .boolean()
    .optional()
    .describe('Default true. If false, a paused session refuses what needs a sandbox until it is resumed'),
})

/** Options of the agent SDK, and what Ash itself decides for a sandbox. */
export const AgentConfig = AgentOptions.extend(SandboxSettings.shape)
export type AgentConfig = z.infer<typeof AgentConfig>

/** The part of a configuration that reaches the agent SDK. */
export function sdkOptions(config: AgentConfig): AgentOptions {
  const {
    limits: _limits,
    network: _network,
    budget: _budget,
    credentials: _credentials,
    checkpoints: _checkpoints,
    autoResume: _autoResume,
    ...options
  } = config
  return options
}

/** What can be changed while a session lives. */
export const SessionPatch = SandboxSettings.pick({
  network: true,
  budget: true,
  credentials: true,
  checkpoints: true,
  autoResume: true,
})
  .refine((patch) => Object.keys(patch).length > 0, 'must change something')
  .meta({ id: 'SessionPatch' })
export type SessionPatch = z.infer<typeof SessionPatch>
