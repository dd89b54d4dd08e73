import { isDeepStrictEqual } from 'node:util'
import { AshError, DEFAULT_TENANT, isAshError, type TemplateSettings } from '@ash-ai/shared'
import type { FastifyBaseLogger } from 'fastify'
import { deployAgent } from '../agents/agent-deploy.ts'
import type { AgentStore } from '../agents/agent-queries.ts'
import { getTemplateForSession, putTemplate } from '../templates/template-queries.ts'
import type { RegistryHost } from './environments.ts'
import { formatFault } from './fault.ts'
import { loadRegistry, type Registry } from './load-registry.ts'

/** The registry that the settings name. Says every fault in the log and throws where there is one. */
export async function openRegistry(
  { registryDir, ...host }: RegistryHost & { registryDir?: string | undefined },
  log: FastifyBaseLogger,
): Promise<Registry | undefined> {
  if (registryDir === undefined) return undefined
  const { registry, faults } = await loadRegistry(registryDir, host)
  for (const fault of faults) log.error({ fault }, `registry: ${formatFault(fault)}`)
  if (registry) return registry
  const count = faults.length === 1 ? 'a fault' : `${faults.length} faults`
  throw new Error(`The registry in ${registryDir} (ASH_REGISTRY_DIR) has ${count}, listed above`)
}

/**
 * Makes templates and agents of the default tenant what the registry says, whoever changed them meanwhile. What is the
 * same already stays untouched. Nothing is deleted: sessions may use what is no longer in the registry.
 */
export async function applyRegistry(
  store: AgentStore,
  { templates, agents }: Registry,
  log: FastifyBaseLogger,
): Promise<void> {
  const changed: string[] = []
  for (const { file, name, settings } of templates) {
    if (await at(file, () => storeTemplate(store, name, settings))) changed.push(file)
  }
  // After the templates, which they name.
  for (const { file, request } of agents) {
    const { isNew } = await at(file, () => deployAgent(store, DEFAULT_TENANT, request))
    if (isNew) changed.push(file)
  }
  log.info({ templates: templates.length, agents: agents.length, changed }, 'registry applied')
}

/** Whether it was different before. */
async function storeTemplate(store: AgentStore, name: string, settings: TemplateSettings): Promise<boolean> {
  const { env = {}, ...others } = settings
  const before = await getTemplateForSession(store, DEFAULT_TENANT, name).catch(ifMissing)
  if (before && isDeepStrictEqual([before.settings, before.env], [others, env])) return false
  await putTemplate(store, DEFAULT_TENANT, name, settings)
  return true
}

function ifMissing(error: unknown): undefined {
  if (!isAshError(error, 'template_not_found')) throw error
}

/** What the API would refuse is said with the file that asks for it. */
async function at<Result>(file: string, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work()
  } catch (error) {
    if (!isAshError(error)) throw error
    throw new AshError(error.code, `registry: ${file}: ${error.message}`, { cause: error })
  }
}
