import { parsePolicy } from '@ash-ai/sandbox'
import {
  type AgentConfig,
  AshError,
  DEFAULT_RUN_TIMEOUT_MS,
  LANGUAGES,
  type Limits,
  type Network,
  type NewSession,
  type SessionMode,
} from '@ash-ai/shared'
import { type AgentForSession, getAgentForSession } from '../agents/agent-queries.ts'
import { type Blueprint, makeBlueprint, mergePackages } from '../agents/blueprint.ts'
import { assertCredentials } from '../credentials/credential-queries.ts'
import { validationError } from '../http/validation-error.ts'
import { agentWarm, type SpareKind, type WarmCount } from '../sandboxes/spare-plans.ts'
import { getTemplateForSession, type TemplateForSession } from '../templates/template-queries.ts'
import { effectiveLimits } from './effective-limits.ts'
import type { SessionRunSettings } from './run-settings.ts'
import type { SessionDeps } from './session-deps.ts'

/** All that is decided about a session before it exists. */
export interface SessionPlan {
  tenantId: string
  mode: SessionMode
  agentId: string | undefined
  blueprint: Blueprint
  /** In force for it. */
  limits: Limits
  /** What it says for itself. */
  config: AgentConfig
  /** That over what its agent says, and below both what the template gives. */
  settings: AgentConfig
  /** Its own over those of the template; those of the agent, where there is one, come in between. */
  env: Record<string, string>
  run: SessionRunSettings
  idleTimeoutMs: number | null
  lifetimeMs: number | null
  /** Of the template, for providers that run containers. */
  image: string | undefined
  /** Which spares would do, and how many are kept of them. */
  spares: { kind: SpareKind; warm: WarmCount }
}

type Request = NewSession
interface Sources {
  agent: AgentForSession | undefined
  template: TemplateForSession | undefined
}

const NO_SPARES: WarmCount = { min: 0, target: 0, idle: 0 }

/** Refuses what cannot be. Template under agent under session; what they give is kept, whatever becomes of them. */
export async function planSession(
  deps: SessionDeps,
  tenantId: string,
  request: Request,
): Promise<SessionPlan> {
  assertProvider(deps, request.provider)
  const mode = request.mode ?? 'persistent'
  if (mode === 'ephemeral' && request.agentId !== undefined)
    throw validationError([{ path: 'agentId', message: 'is for persistent sessions' }])
  const sources = await findSources(deps, tenantId, request)
  const { agent, template } = sources
  const { limits: templateLimits, network, checkpoints, image } = template?.settings ?? {}
  const config = ownConfig(request)
  const settings = {
    ...(network && { network }),
    ...(checkpoints && { checkpoints }),
    ...agent?.config,
    ...config,
  }
  parsePolicy(settings.network ?? 'none') // Refuses what it cannot read.
  await assertCredentials(deps.db, tenantId, settings.credentials)
  const under = { ...templateLimits, ...agent?.config.limits }
  const run = runSettings(request, sources)
  return {
    tenantId,
    mode,
    agentId: request.agentId,
    blueprint: makeBlueprint({
      agent,
      template: template?.name,
      packages: run.packages,
      runtime: run.runtime,
      limits: effectiveLimits(deps.limits, under),
      network: run.installNetwork,
    }),
    limits: effectiveLimits(deps.limits, under, config.limits),
    config,
    settings,
    env: { ...withoutNames(template?.env ?? {}, agent?.env ?? {}), ...request.env },
    run,
    ...timesOf(deps, request, sources),
    image,
    spares: sparesOf(deps, tenantId, mode, sources),
  }
}

function assertProvider({ provider }: SessionDeps, asked: string | undefined): void {
  if (asked === undefined || asked === provider.name) return
  throw new AshError('provider_unavailable', `This server runs sandboxes with ${provider.name}, not ${asked}`)
}

async function findSources(deps: SessionDeps, tenantId: string, request: Request): Promise<Sources> {
  const { agent: name, agentVersion } = request
  const agent = name === undefined ? undefined : await getAgentForSession(deps, tenantId, name, agentVersion)
  const templateName = request.template ?? agent?.template
  const template =
    templateName === undefined ? undefined : await getTemplateForSession(deps, tenantId, templateName)
  if (!agent && !template)
    throw validationError([{ path: 'agent', message: 'must name an agent or a template' }])
  return { agent, template }
}

/** Without what has a place of its own. */
function ownConfig(request: Request): AgentConfig {
  const {
    agent: _agent,
    agentVersion: _agentVersion,
    template: _template,
    env: _env,
    packages: _packages,
    provider: _provider,
    mode: _mode,
    agentId: _agentId,
    timeout: _timeout,
    idleTimeout: _idleTimeout,
    lifetime: _lifetime,
    ...config
  } = request
  return config
}

function runSettings(request: Request, { agent, template }: Sources): SessionRunSettings {
  const { packages, runtime, timeout } = template?.settings ?? {}
  return {
    languages: template?.languages ?? [...LANGUAGES],
    timeoutMs: request.timeout ?? timeout ?? DEFAULT_RUN_TIMEOUT_MS,
    ...(runtime !== undefined && { runtime }),
    packages: mergePackages(packages, request.packages),
    ...(template || request.packages ? { installNetwork: installNetwork(request, { agent, template }) } : {}),
  }
}

/** Packages of a session come by the network of the session, others by that of whoever names them. */
function installNetwork({ packages, network }: Request, { agent, template }: Sources): Network {
  const theirs = agent?.config.network ?? template?.settings.network
  return (packages ? (network ?? theirs) : (theirs ?? network)) ?? 'none'
}

/** Sessions that only run code rest sooner or later than agents do, and are replaced. */
function timesOf(deps: SessionDeps, request: Request, { agent, template }: Sources) {
  const idle = request.idleTimeout ?? template?.settings.idleTimeout
  const lifetime = request.lifetime ?? template?.settings.lifetime
  return {
    idleTimeoutMs: idle ?? (agent ? null : deps.codeIdleTimeoutMs),
    lifetimeMs: lifetime ?? (agent ? null : deps.codeLifetimeMs),
  }
}

function sparesOf(
  deps: SessionDeps,
  tenantId: string,
  mode: SessionMode,
  { agent, template }: Sources,
): SessionPlan['spares'] {
  if (agent) return { kind: { tenantId, of: 'agent', name: agent.name }, warm: agentWarm(deps, agent) }
  return {
    kind: { tenantId, of: mode, name: template?.name ?? '' },
    warm: template?.settings.warm?.[mode] ?? NO_SPARES,
  }
}

const withoutNames = (env: Record<string, string>, names: object) =>
  Object.fromEntries(Object.entries(env).filter(([name]) => !Object.hasOwn(names, name)))
