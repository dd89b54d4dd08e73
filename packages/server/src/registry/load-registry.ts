import type { TemplateSettings } from '@ash-ai/shared'
import type { z } from 'zod'
import type { DeployRequest } from '../agents/agent-deploy.ts'
import { agentFaults, type References, toDeployRequest } from './agents.ts'
import { type Checked, checkShape } from './check-shape.ts'
import { environmentFaults, type RegistryHost, toTemplateSettings } from './environments.ts'
import { type Fault, sortFaults } from './fault.ts'
import { AgentItem, EnvironmentItem, PromptItem, ToolItem } from './item-schemas.ts'
import { KINDS, type Kind, type RegistryFiles, readRegistryFiles } from './read-files.ts'
import type { SourceFile } from './source-file.ts'
import { resolveTool, type Tool } from './tools.ts'

/** What a registry makes of a server. */
export interface Registry {
  templates: { file: string; name: string; settings: TemplateSettings }[]
  agents: { file: string; request: DeployRequest }[]
}

export interface RegistryEntry {
  kind: Kind
  name: string
  description: string
  file: string
}

export interface LoadedRegistry {
  entries: RegistryEntry[]
  /** Every one, by place. With any of them there is nothing to apply. */
  faults: Fault[]
  registry?: Registry
}

/** Reads and checks a registry. Changes nothing, so that it can be asked for before a server is started. */
export async function loadRegistry(dir: string, host: RegistryHost): Promise<LoadedRegistry> {
  const { files, faults } = await readRegistryFiles(dir)
  const environments = checkAll(files.environments, EnvironmentItem, faults)
  const agents = checkAll(files.agents, AgentItem, faults)
  const references: References = {
    environments: byName(environments),
    tools: await resolveTools(dir, files.tools, faults),
    prompts: byName(checkAll(files.prompts, PromptItem, faults)),
  }
  for (const environment of environments)
    faults.push(...(await meaningFaults(environment, (file, part) => environmentFaults(file, part, host))))
  for (const agent of agents)
    faults.push(...(await meaningFaults(agent, (file, part) => agentFaults(file, part, references, host))))
  faults.push(...KINDS.flatMap((kind) => duplicateFaults(files[kind])))
  const entries = listEntries(files)
  if (faults.length > 0) return { entries, faults: sortFaults(faults) }
  const requests = agents.flatMap(({ file, item }) =>
    item ? [{ file: file.path, request: toDeployRequest(item, references, host) }] : [],
  )
  return { entries, faults, registry: { templates: toTemplates(environments), agents: requests } }
}

function checkAll<Shape extends z.ZodRawShape>(
  files: SourceFile[],
  schema: z.ZodObject<Shape>,
  faults: Fault[],
): Checked<z.infer<z.ZodObject<Shape>>>[] {
  return files.map((file) => checkShape(file, schema, faults))
}

/** What is wrong with fields that have the right form; that one is missing is said once, by its form. */
async function meaningFaults<Item>(
  { file, item, part }: Checked<Item>,
  find: (file: SourceFile, part: Partial<Item>) => Promise<Fault[]>,
): Promise<Fault[]> {
  if (file.faults.length > 0) return []
  const faults = await find(file, part)
  return item === undefined ? faults.filter(({ field }) => field !== '') : faults
}

function byName<Item>(checked: Pick<Checked<Item>, 'file' | 'item'>[]): Map<string, Item | undefined> {
  return new Map(checked.flatMap(({ file, item }) => (file.name === undefined ? [] : [[file.name, item]])))
}

async function resolveTools(dir: string, files: SourceFile[], faults: Fault[]): Promise<References['tools']> {
  const tools: Pick<Checked<Tool>, 'file' | 'item'>[] = []
  for (const { file, item } of checkAll(files, ToolItem, faults)) {
    const resolved = item && (await resolveTool(dir, file, item))
    tools.push({ file, item: resolved?.tool })
    faults.push(...(resolved?.faults ?? []))
  }
  return byName(tools)
}

function duplicateFaults(files: SourceFile[]): Fault[] {
  const first = new Map<string, string>()
  return files.flatMap((file) => {
    if (file.name === undefined) return []
    const other = first.get(file.name)
    if (other === undefined) first.set(file.name, file.path)
    return other === undefined ? [] : [file.fault(['name'], `"${file.name}" is taken by ${other}`)]
  })
}

function toTemplates(environments: Checked<EnvironmentItem>[]): Registry['templates'] {
  return environments.flatMap(({ file, item }) =>
    item ? [{ file: file.path, name: item.name, settings: toTemplateSettings(item) }] : [],
  )
}

function listEntries(files: RegistryFiles['files']): RegistryEntry[] {
  return KINDS.flatMap((kind) =>
    files[kind].flatMap(({ path, name, value }) => {
      if (name === undefined) return []
      const { description = '' } = value as { description?: unknown }
      return [{ kind, name, description: String(description).trim(), file: path }]
    }),
  )
}
