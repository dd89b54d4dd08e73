import { SANDBOX_PATHS } from '@ash-ai/sandbox'
import { DeployConfig, type Network } from '@ash-ai/shared'
import type { DeployRequest } from '../agents/agent-deploy.ts'
import { BUILT_IN_TEMPLATES } from '../templates/built-in-templates.ts'
import { BUILT_IN_TOOLS } from './built-in-tools.ts'
import { providerFaults, type RegistryHost, sandboxRefusals, toTemplateSettings } from './environments.ts'
import { didYouMean, type Fault } from './fault.ts'
import type { AgentItem, EnvironmentItem, PromptItem } from './item-schemas.ts'
import type { SourceFile } from './source-file.ts'
import { type Tool, textEntry, toolFiles, toolOptions } from './tools.ts'

/** What agents refer to, by name. One that has faults of its own is there without a value. */
export interface References {
  environments: Map<string, EnvironmentItem | undefined>
  tools: Map<string, Tool | undefined>
  prompts: Map<string, PromptItem | undefined>
}

/** What is wrong with an agent, as far as its fields have the right form. */
export async function agentFaults(
  file: SourceFile,
  agent: Partial<AgentItem>,
  references: References,
  host: RegistryHost,
): Promise<Fault[]> {
  const network = networkOf(agent, references)
  const faults = [...providerFaults(file, agent, host), ...promptFaults(file, agent, references)]
  const { environment, capabilities = [] } = agent
  if (environment !== undefined && !hasEnvironment(environment, references))
    faults.push(
      file.fault(['environment'], unknown('environment', environment, environmentNames(references))),
    )
  if (network === 'none' && capabilities.includes('network_access'))
    faults.push(file.fault(['capabilities'], `has network_access, but ${whose(agent)} is "none"`))
  const toolFaults = (agent.tools ?? []).flatMap((name, index) =>
    toolFault(name, agent, references, network).map((text) => file.fault(['tools', index], text)),
  )
  const refusals = await sandboxRefusals(agent.config ?? {}, host)
  const configFaults = refusals.map(({ path, message }) =>
    file.fault(['config', ...path.split('.')], message),
  )
  return [...faults, ...toolFaults, ...configFaults]
}

/** The agent as a folder and its options. Only for one without faults. */
export function toDeployRequest(agent: AgentItem, references: References, host: RegistryHost): DeployRequest {
  const names = [...new Set(agent.tools)]
  const tools = names.flatMap((name) => references.tools.get(name) ?? [])
  const builtIn = names.filter((name) => BUILT_IN_TOOLS.has(name))
  // Without isolation there is no /agent; its copy in the working folder is then the one to use.
  const agentDir = host.provider === 'process' ? undefined : SANDBOX_PATHS.agent
  const config = {
    ...agent.config,
    ...(agent.model !== undefined && { model: agent.model }),
    ...(agent.environment !== undefined && { template: agent.environment }),
    ...(agent.tools && toolOptions(builtIn, tools, agentDir)),
  }
  return {
    name: agent.name,
    entries: [textEntry('CLAUDE.md', instructions(agent, references)), ...toolFiles(tools)],
    config: DeployConfig.parse(config),
  }
}

function instructions(agent: AgentItem, { prompts }: References): string {
  const { name, description, capabilities = [], examples = [] } = agent
  const prompt = agent.system_prompt ?? prompts.get(agent.prompt ?? '')?.system_prompt ?? ''
  const parts = [
    `# ${name}`,
    description,
    prompt,
    capabilities.length > 0 && `## What you can do\n\n${capabilities.map((text) => `- ${text}`).join('\n')}`,
    examples.length > 0 && '## How to go about it',
    ...examples.map(({ task, approach }) => `Task: ${task.trim()}\n\nApproach: ${approach.trim()}`),
  ]
  return `${parts.flatMap((part) => (part ? [part.trim()] : [])).join('\n\n')}\n`
}

function promptFaults(file: SourceFile, agent: Partial<AgentItem>, { prompts }: References): Fault[] {
  const { prompt, system_prompt } = agent
  if (prompt !== undefined && system_prompt !== undefined)
    return [file.fault(['prompt'], 'an agent has either `prompt` or `system_prompt`')]
  if (prompt === undefined)
    return system_prompt === undefined ? [file.fault([], 'needs `prompt` or `system_prompt`')] : []
  return prompts.has(prompt) ? [] : [file.fault(['prompt'], unknown('prompt', prompt, prompts.keys()))]
}

function toolFault(
  name: string,
  agent: Partial<AgentItem>,
  { tools }: References,
  network: Network | undefined,
): string[] {
  if (BUILT_IN_TOOLS.has(name)) return []
  if (!tools.has(name)) return [unknown('tool', name, [...tools.keys(), ...BUILT_IN_TOOLS])]
  const { allow_network, capabilities = [] } = tools.get(name)?.item ?? {}
  const wantsNetwork = capabilities.includes('network_access') ? true : allow_network
  if (wantsNetwork === undefined || network === undefined || wantsNetwork === (network !== 'none')) return []
  const want = wantsNetwork ? 'wants the network' : 'wants no network'
  return [
    `"${name}" ${want}, but ${whose(agent)} is ${JSON.stringify(network)}. All of a session has the same network`,
  ]
}

/** Undefined where the environment has faults of its own. */
function networkOf(agent: Partial<AgentItem>, { environments }: References): Network | undefined {
  const { environment, config } = agent
  if (config?.network !== undefined) return config.network
  if (environment === undefined || BUILT_IN_TEMPLATES.has(environment)) return 'none'
  const item = environments.get(environment)
  return item && (toTemplateSettings(item).network ?? 'none')
}

const whose = ({ environment, config }: Partial<AgentItem>) =>
  config?.network === undefined && environment !== undefined
    ? `the network of environment "${environment}"`
    : 'the network of the agent'

const hasEnvironment = (name: string, { environments }: References) =>
  environments.has(name) || BUILT_IN_TEMPLATES.has(name)

const environmentNames = ({ environments }: References) => [
  ...environments.keys(),
  ...BUILT_IN_TEMPLATES.keys(),
]

function unknown(kind: string, name: string, known: Iterable<string>): string {
  return `there is no ${kind} "${name}"${didYouMean(name, known)}`
}
