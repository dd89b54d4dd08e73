import { isAshError, LANGUAGES, type Language, type Limits, type SessionMode } from '@ash-ai/shared'
import { type AgentForSession, type AgentStore, getAgentForSession } from '../agents/agent-queries.ts'
import { type Blueprint, makeBlueprint, mergePackages } from '../agents/blueprint.ts'
import { effectiveLimits } from '../sessions/effective-limits.ts'
import { getTemplateForSession, type TemplateForSession } from '../templates/template-queries.ts'

/** Of what spares are kept: of an agent's newest version, or of a template for sessions of one mode. */
export interface SpareKind {
  tenantId: string
  of: 'agent' | SessionMode
  name: string
}

export interface WarmCount {
  /** Kept always. */
  min: number
  /** Kept while it is used. */
  target: number
  /** Without use for so long, it counts as unused. */
  idle: number
}

/** What a spare of a kind is now, and how many there should be. */
export interface SparePlan {
  blueprint: Blueprint
  /** That an interpreter is kept ready for. */
  language: Language
  limits: Limits
  warm: WarmCount
}

interface PlanDeps extends AgentStore {
  /** Default and ceiling of what a sandbox may use. */
  limits: Limits
  /** For agents that say nothing themselves. */
  warmSpares: number
}

/** Undefined where there is no such agent or template any more, or where none of its kind are kept. */
export async function findSparePlan(deps: PlanDeps, kind: SpareKind): Promise<SparePlan | undefined> {
  try {
    return kind.of === 'agent' ? await agentPlan(deps, kind) : await templatePlan(deps, kind, kind.of)
  } catch (error) {
    if (isAshError(error, 'agent_not_found') || isAshError(error, 'template_not_found')) return undefined
    throw error
  }
}

async function agentPlan(deps: PlanDeps, { tenantId, name }: SpareKind): Promise<SparePlan> {
  const agent = await getAgentForSession(deps, tenantId, name)
  const template =
    agent.template === undefined ? undefined : await getTemplateForSession(deps, tenantId, agent.template)
  return { ...planOf(deps, agent, template), warm: agentWarm(deps, agent) }
}

export const agentWarm = (
  { warmSpares }: Pick<PlanDeps, 'warmSpares'>,
  { warm = warmSpares }: Pick<AgentForSession, 'warm'>,
): WarmCount => ({ min: warm, target: warm, idle: 0 })

async function templatePlan(
  deps: PlanDeps,
  { tenantId, name }: SpareKind,
  mode: SessionMode,
): Promise<SparePlan | undefined> {
  const template = await getTemplateForSession(deps, tenantId, name)
  const warm = template.settings.warm?.[mode]
  return warm && { ...planOf(deps, undefined, template), warm }
}

/** As `planSession` does for a session that asks for nothing of its own. */
function planOf(
  deps: PlanDeps,
  agent: AgentForSession | undefined,
  template: TemplateForSession | undefined,
): Omit<SparePlan, 'warm'> {
  const settings = template?.settings ?? {}
  const limits = effectiveLimits(deps.limits, { ...settings.limits, ...agent?.config.limits })
  const blueprint = makeBlueprint({
    agent,
    template: template?.name,
    packages: mergePackages(settings.packages),
    runtime: settings.runtime,
    limits,
    network: agent?.config.network ?? settings.network,
  })
  return { blueprint, limits, language: template?.languages[0] ?? LANGUAGES[0] }
}
