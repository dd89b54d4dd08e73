import { type AgentStore, getAgentForSession } from '../agents/agent-queries.ts'
import { type Blueprint, makeBlueprint } from '../agents/blueprint.ts'
import { storedLimits } from './effective-limits.ts'
import { readRunSettings } from './run-settings.ts'
import type { SessionRow } from './session-queries.ts'

/** What a session is made of: its agent version, and what its row has kept of the template it began with. */
export async function blueprintOf(store: AgentStore, row: SessionRow): Promise<Blueprint> {
  const { packages, runtime, installNetwork } = readRunSettings(row)
  const agent =
    row.agent_name === null
      ? undefined
      : await getAgentForSession(store, row.tenant_id, row.agent_name, row.agent_version ?? undefined)
  return makeBlueprint({
    agent,
    template: row.template ?? undefined,
    packages,
    runtime,
    network: installNetwork,
    ...(row.template !== null && { limits: storedLimits(row.limits) }),
  })
}
