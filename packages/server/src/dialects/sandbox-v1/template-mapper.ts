import { Env, type Language, type Limits, type Template, TemplateSettings } from '@ash-ai/shared'
import { z } from 'zod'
import { parseInput } from '../../http/validation-error.ts'
import { TemplateId } from './session-schemas.ts'

/** Templates that the dialect's clients expect to find, and which of ours stands for each. */
export const SEED_TEMPLATES: Partial<Record<string, string>> = {
  'python-basic': 'python',
  'nodejs-basic': 'node',
}

const PackageSpec = z.union([
  z.string().max(200),
  z
    .object({ name: z.string().max(100), version: z.string().max(90).nullish() })
    .transform(({ name, version }) => (version ? `${name}==${version}` : name)),
])

const RUNTIMES = ['python3.11', 'nodejs20'] as const
const RUNTIME = `must be ${RUNTIMES.join(' or ')}, or another Python of this server such as python3`

const Fields = {
  name: z.string().min(1).max(255),
  image_url: z.string().min(1).max(512),
  runtime_type: z.string().regex(/^(python3(\.\d{1,2})?|nodejs\d{1,2})$/, RUNTIME),
  default_cpu_cores: z.number().min(0.1).max(4),
  default_memory_mb: z.number().int().min(128).max(8192),
  default_disk_mb: z.number().int().min(256).max(51_200),
  default_timeout: z.number().int().min(1).max(3600),
  default_env_vars: Env,
  pre_installed_packages: z.array(PackageSpec).max(100),
  security_context: z.object({
    network_enabled: z.boolean().nullish(),
    max_processes: z.number().int().min(32).max(1024).nullish(),
  }),
  description: z.string().max(700),
}

const orNull = <Shape extends Record<string, z.ZodType>>(shape: Shape) =>
  Object.fromEntries(Object.entries(shape).map(([name, schema]) => [name, schema.nullish()])) as {
    [Name in keyof Shape]: z.ZodOptional<z.ZodNullable<Shape[Name]>>
  }

export const V1TemplateUpdate = z.object(orNull(Fields))
export type V1TemplateUpdate = z.infer<typeof V1TemplateUpdate>
export const V1TemplateCreate = V1TemplateUpdate.extend({
  id: TemplateId,
  name: Fields.name,
  image_url: Fields.image_url,
})

/** What is said, over what was there. */
export function toSettings(given: V1TemplateUpdate, before: TemplateSettings): TemplateSettings {
  const { security_context, pre_installed_packages: pip, runtime_type } = given
  const limits = { ...before.limits, ...limitsOf(given) }
  const network = security_context?.network_enabled
  return parseInput(TemplateSettings, {
    ...before,
    description: describe(given, before),
    ...(given.image_url && { image: given.image_url }),
    ...(runtime_type && runtimeOf(runtime_type)),
    ...(Object.keys(limits).length > 0 && { limits }),
    ...(given.default_timeout && { timeout: given.default_timeout * 1000 }),
    ...(given.default_env_vars && { env: given.default_env_vars }),
    ...(pip && { packages: { ...before.packages, pip } }),
    ...(network !== undefined && network !== null && { network: network ? 'open' : 'none' }),
  })
}

function limitsOf({
  default_cpu_cores: cpus,
  default_memory_mb: memoryMb,
  default_disk_mb: diskMb,
  security_context,
}: V1TemplateUpdate): Partial<Limits> {
  const processes = security_context?.max_processes
  return {
    ...(cpus && { cpus }),
    ...(memoryMb && { memoryMb }),
    ...(diskMb && { diskMb }),
    ...(processes && { processes }),
  }
}

/** A Python by the name of its program. Node is that of the server, whatever its version. */
function runtimeOf(type: string): Pick<TemplateSettings, 'languages' | 'runtime'> {
  if (type.startsWith('nodejs')) return { languages: ['javascript', 'shell'] }
  return { languages: ['python', 'shell'], runtime: type }
}

const GAP = '\n\n'

/** A template of ours has one name, which is its id here: the other is the first line of its description. */
function describe({ name, description }: V1TemplateUpdate, before: TemplateSettings): string {
  const [line = '', ...rest] = (before.description ?? '').split(GAP)
  const text = description ?? rest.join(GAP)
  return [name ?? line, text].filter(Boolean).join(GAP)
}

const RUNTIME_TYPES: Record<Language, string> = { python: 'python3', javascript: 'nodejs', shell: 'shell' }

/** `most` is what the server gives a template that says nothing. */
export function toV1Template(template: Template, most: Limits, defaultTimeoutMs: number) {
  const { name, description = '', languages, runtime, packages, limits, network = 'none' } = template
  const { cpus, memoryMb, diskMb, processes } = { ...most, ...limits }
  const timeout = Math.ceil((template.timeout ?? defaultTimeoutMs) / 1000)
  const [line = '', ...rest] = template.isBuiltIn ? [name, description] : description.split(GAP)
  return {
    id: name,
    name: line === '' ? name : line,
    description: rest.join(GAP),
    image_url: template.image ?? '',
    runtime_type: runtime ?? RUNTIME_TYPES[languages[0] ?? 'shell'],
    default_cpu_cores: cpus,
    default_memory_mb: memoryMb,
    default_disk_mb: diskMb,
    default_timeout: timeout,
    default_timeout_sec: timeout,
    default_env_vars: template.env,
    pre_installed_packages: packages?.pip ?? [],
    security_context: { network_enabled: network !== 'none', max_processes: processes },
    is_active: true,
    created_at: template.createdAt ?? null,
    updated_at: template.updatedAt ?? null,
  }
}
