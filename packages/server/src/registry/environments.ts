import { parsePolicy } from '@ash-ai/sandbox'
import {
  type ErrorDetail,
  isAshError,
  type Limits,
  type Network,
  type TemplateSettings,
} from '@ash-ai/shared'
import { effectiveLimits } from '../sessions/effective-limits.ts'
import { BUILT_IN_TEMPLATES } from '../templates/built-in-templates.ts'
import { assertUsable } from '../templates/template-settings.ts'
import { didYouMean, type Fault } from './fault.ts'
import type { EnvironmentItem } from './item-schemas.ts'
import type { SourceFile } from './source-file.ts'

/** What of a server decides whether a registry can be used. */
export interface RegistryHost {
  provider: string
  limits: Limits
}

/** Pure: an environment as the template it becomes. */
export function toTemplateSettings(item: Partial<EnvironmentItem>): TemplateSettings {
  const { description, runtime, image, packages, environment, resources = {}, warm } = item
  const { memory: memoryMb, cpu: cpus, disk: diskMb, timeout } = resources
  const limits = given({ memoryMb, cpus, diskMb })
  const languages = item.languages ?? BUILT_IN_TEMPLATES.get(item.template ?? '')?.languages
  return given({
    description,
    runtime,
    languages,
    image,
    packages,
    env: environment,
    limits: Object.keys(limits).length > 0 ? limits : undefined,
    network: networkOf(item),
    timeout,
    warm,
  })
}

function networkOf({ network, capabilities = [] }: Partial<EnvironmentItem>): Network {
  return network ?? (capabilities.includes('network_access') ? 'open' : 'none')
}

/** What is wrong with an environment, as far as its fields have the right form. */
export async function environmentFaults(
  file: SourceFile,
  item: Partial<EnvironmentItem>,
  host: RegistryHost,
): Promise<Fault[]> {
  const faults = [...providerFaults(file, item, host), ...(await settingsFaults(file, item, host))]
  const { name, template, mounts = [], network, capabilities = [] } = item
  if (name !== undefined && BUILT_IN_TEMPLATES.has(name))
    faults.push(file.fault(['name'], `"${name}" is built in; choose another name`))
  if (template !== undefined && !BUILT_IN_TEMPLATES.has(template))
    faults.push(file.fault(['template'], unknownTemplate(template)))
  if (mounts.length > 0) faults.push(file.fault(['mounts'], NO_MOUNTS))
  if (network === 'none' && capabilities.includes('network_access'))
    faults.push(file.fault(['network'], 'is "none", while `capabilities` has network_access'))
  return faults
}

const NO_MOUNTS =
  'folders of the host are not mounted: a sandbox sees nothing of it. Put files into an agent folder or upload them'

const unknownTemplate = (name: string) => {
  const known = [...BUILT_IN_TEMPLATES.keys()]
  return `must be one that is built in (${known.join(', ')})${didYouMean(name, known)}`
}

/** A registry is for one server, which runs every sandbox in the same way. */
export function providerFaults(
  file: SourceFile,
  { provider }: { provider?: string | undefined },
  host: RegistryHost,
): Fault[] {
  if (provider === undefined || provider === host.provider) return []
  const who =
    provider === 'e2b' ? 'Ash runs sandboxes itself and uses no E2B' : `this server has "${host.provider}"`
  return [
    file.fault(['provider'], `"${provider}" is not available: ${who}. Leave it out, or change ASH_PROVIDER`),
  ]
}

/** As the API judges a template, under the names that the file has. */
async function settingsFaults(
  file: SourceFile,
  item: Partial<EnvironmentItem>,
  host: RegistryHost,
): Promise<Fault[]> {
  const { limits, network, runtime, warm } = toTemplateSettings(item)
  const details = [
    ...(await sandboxRefusals({ limits, network }, host)),
    ...(await refusals(() => assertUsable(given({ runtime, warm }), host.limits))),
  ]
  return details.map(({ path, message }) => file.fault(FIELDS[path] ?? path.split('.'), message))
}

const FIELDS: Record<string, string[]> = {
  'limits.memoryMb': ['resources', 'memory'],
  'limits.cpus': ['resources', 'cpu'],
  'limits.diskMb': ['resources', 'disk'],
}

/** What this server gives no sandbox. */
export async function sandboxRefusals(
  { limits, network = 'none' }: Pick<TemplateSettings, 'limits' | 'network'>,
  host: RegistryHost,
): Promise<ErrorDetail[]> {
  return [
    ...(await refusals(() => effectiveLimits(host.limits, limits))),
    ...(await refusals(() => parsePolicy(network))),
  ]
}

/** Only a network policy is refused without naming a field. */
async function refusals(check: () => unknown): Promise<ErrorDetail[]> {
  try {
    await check()
    return []
  } catch (error) {
    if (!isAshError(error, 'validation_failed')) throw error
    return error.details ?? [{ path: 'network', message: error.message }]
  }
}

type Given<Fields> = { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> }

function given<Fields extends object>(fields: Fields): Given<Fields> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== undefined),
  ) as Given<Fields>
}
