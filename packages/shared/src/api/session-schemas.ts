import { z } from 'zod'
import { SANDBOX_STATES, SESSION_STATUSES } from '../session-state.ts'
import { AgentName, Env, IsoTime, Paging } from './common-schemas.ts'
import {
  AgentConfig,
  BudgetLimits,
  CheckpointSettings,
  Limits,
  ModelUsage,
  Network,
} from './sandbox-settings.ts'

const SessionStatusSchema = z.enum(SESSION_STATUSES)

export const SessionCreate = AgentConfig.extend({
  agent: AgentName,
  agentVersion: z.number().int().min(1).optional().describe('Default: the newest version'),
  env: Env.optional().describe('Variables for this session, over those of the agent'),
}).meta({ id: 'SessionCreate' })
export type SessionCreate = z.infer<typeof SessionCreate>

export const Session = z
  .object({
    id: z.string(),
    tenantId: z.string(),
    agentName: z.string(),
    agentVersion: z.number().int(),
    provider: z.string(),
    isolation: z.enum(['bwrap', 'none']).describe('What stands between the agent and the host'),
    status: SessionStatusSchema,
    parentSessionId: z.string().optional().describe('It was forked from this one'),
    checkpointId: z.string().optional().describe('Its files descend from this checkpoint'),
    sandboxState: z
      .enum(SANDBOX_STATES)
      .describe('`cold`: no process runs. `waiting`: one is kept for it. `running`: it is at work'),
    sandboxId: z.string().optional(),
    model: z.string().optional(),
    config: AgentConfig,
    limits: Limits.describe('In force for this session'),
    network: Network,
    budget: BudgetLimits.optional(),
    credentials: z.array(z.string()).describe('Names of those it may use'),
    checkpoints: CheckpointSettings,
    autoResume: z.boolean(),
    usage: ModelUsage,
    env: z.record(z.string(), z.literal('***')),
    createdAt: IsoTime,
    lastActiveAt: IsoTime,
    endedAt: IsoTime.optional(),
    error: z.object({ code: z.string(), message: z.string() }).optional(),
  })
  .meta({ id: 'Session' })
export type Session = z.infer<typeof Session>

export const SessionList = Paging.extend({
  agent: AgentName.optional(),
  status: SessionStatusSchema.optional(),
})
export type SessionList = z.input<typeof SessionList>
