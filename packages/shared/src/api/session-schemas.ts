import { z } from 'zod'
import { SANDBOX_STATES, SESSION_STATUSES } from '../session-state.ts'
import { AgentName, Env, IsoTime, Paging } from './common-schemas.ts'
import { isOneRun, LanguageSchema, ONE_RUN, Run, RunTimeout } from './execution-schemas.ts'
import { Packages } from './package-schemas.ts'
import {
  AgentConfig,
  BudgetLimits,
  CheckpointSettings,
  Limits,
  ModelUsage,
  Network,
} from './sandbox-settings.ts'
import { SessionMode, TemplateName, TemplateSettings } from './template-schemas.ts'

const SessionStatusSchema = z.enum(SESSION_STATUSES)

const SomeLimits = Limits.partial()
type SomeLimits = z.infer<typeof SomeLimits>

/** What a session that runs code may say for itself, over its template. */
const CodeSession = {
  template: TemplateName.optional().describe(
    'The environment to begin with: python, node, shell, or one of your own',
  ),
  environment: TemplateName.optional().describe('Another word for `template`'),
  env: Env.optional().describe('Variables for this session, over those of the agent and the template'),
  packages: Packages.optional().describe('Installed beside those of the template'),
  resources: SomeLimits.optional().describe('Another word for `limits`'),
  provider: z.string().max(64).optional().describe('Must be the one that this server uses'),
}

const ownWords = <Given extends CodeWords>({ environment, resources, ...given }: Given) => ({
  ...given,
  ...(environment !== undefined && { template: environment }),
  ...(resources !== undefined && { limits: resources }),
})
interface CodeWords {
  agent?: string | undefined
  template?: string | undefined
  environment?: string | undefined
  limits?: SomeLimits | undefined
  resources?: SomeLimits | undefined
}

const isSaidOnce = ({ template, environment, limits, resources }: CodeWords) =>
  (template === undefined || environment === undefined) && (limits === undefined || resources === undefined)
const SAID_TWICE = { error: 'has the same twice: `environment` means `template`, `resources` means `limits`' }

export const SessionCreate = AgentConfig.extend({
  ...CodeSession,
  agent: AgentName.optional().describe('The agent to talk to. A session without one runs code'),
  agentVersion: z.number().int().min(1).optional().describe('Default: the newest version'),
  mode: SessionMode.optional().describe(
    '`ephemeral`: for one execution, then it has ended. Default persistent',
  ),
  agentId: z
    .string()
    .regex(/^[\x21-\x7e]{1,128}$/, 'must be 1 to 128 printable ASCII characters without spaces')
    .optional()
    .describe('Whom the session is for: asked again with the same template, the open session is the answer'),
  timeout: RunTimeout.optional().describe('Of executions that name none, in milliseconds'),
  idleTimeout: TemplateSettings.shape.idleTimeout,
  lifetime: TemplateSettings.shape.lifetime,
})
  .refine(isSaidOnce, SAID_TWICE)
  .refine(
    ({ agent, template, environment }) => agent !== undefined || (template ?? environment) !== undefined,
    { error: 'must name an agent or a template', path: ['agent'] },
  )
  .refine(
    ({ agent, mode, agentId }) => agent === undefined || (mode !== 'ephemeral' && agentId === undefined),
    {
      error: 'is for sessions without an agent: `agentId` and the mode `ephemeral`',
      path: ['agent'],
    },
  )
  .meta({ id: 'SessionCreate' })
/** As a client writes it. */
export type SessionCreate = z.infer<typeof SessionCreate>
/** Each thing under one name. */
export type NewSession = ReturnType<typeof toNewSession>
export const toNewSession = (request: SessionCreate) => ownWords(request)

/** `POST /api/execute`: what to run, and what the session that exists for this one run begins with. */
export const ExecuteOnce = z
  .strictObject({
    ...Run.omit({ kernel: true, fresh: true, retry: true }).shape,
    ...CodeSession,
    limits: SomeLimits.optional(),
    network: Network.optional(),
  })
  .refine(isOneRun, ONE_RUN)
  .refine(isSaidOnce, SAID_TWICE)
  .meta({ id: 'ExecuteOnce' })
export type ExecuteOnce = z.infer<typeof ExecuteOnce>
export const toOnce = (request: ExecuteOnce) => ownWords(request)

export const Session = z
  .object({
    id: z.string(),
    tenantId: z.string(),
    agentName: z.string().optional(),
    agentVersion: z.number().int().optional(),
    template: z.string().optional().describe('The environment it began with'),
    mode: SessionMode,
    agentId: z.string().optional().describe('Whom it is for'),
    languages: z.array(LanguageSchema).describe('That can be run in it'),
    timeout: z.number().int().describe('Of executions that name none, in milliseconds'),
    idleTimeout: z.number().int().describe('Milliseconds without work after which it keeps no process'),
    lifetime: z.number().int().optional().describe('Milliseconds after which its sandbox is replaced'),
    provider: z.string(),
    isolation: z.enum(['bwrap', 'none']).describe('What stands between what runs inside and the host'),
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
  template: TemplateName.optional(),
  status: SessionStatusSchema.optional(),
})
export type SessionList = z.input<typeof SessionList>
