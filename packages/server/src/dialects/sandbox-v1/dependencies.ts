import { type Packages, TemplateSettings } from '@ash-ai/shared'
import { z } from 'zod'
import { parseInput, validationError } from '../../http/validation-error.ts'

const MAX_DEPENDENCIES = 50
const OPERATOR = /^[=!~<>]/

/** The rules for what becomes a word of a command are those of `Packages`; these are the dialect's. */
const Dependency = z.object({
  name: z
    .string()
    .max(100)
    .regex(/^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$/, 'must be the name of a package')
    .refine((name) => !name.includes('..'), 'must be the name of a package')
    .refine((name) => !/^[A-Za-z]+\d+\.\d/.test(name), 'has a version in it; that belongs in `version`'),
  version: z
    .string()
    .max(90)
    .regex(
      /^[=!~<>]{0,2}[A-Za-z0-9][A-Za-z0-9.*+!_-]*(,[=!~<>]{1,2}[A-Za-z0-9.*+!_-]+)*$/,
      'must be a version',
    )
    .nullish(),
})
type Dependency = z.infer<typeof Dependency>

export const Dependencies = z.array(Dependency).max(MAX_DEPENDENCIES)
export const IndexUrl = z.string().max(512).nullish()

/** For the installer, by its own rules; a version without an operator is that version. */
export const toPackages = (dependencies: readonly Dependency[]): Packages =>
  parseInput(Installable, { pip: dependencies.map(toSpec) }, 'dependencies')

const Installable = TemplateSettings.shape.packages.unwrap()

function toSpec({ name, version }: Dependency): string {
  if (!version) return name
  return OPERATOR.test(version) ? `${name}${version}` : `${name}==${version}`
}

export function fromSpec(spec: string): { name: string; version: string | null } {
  const [, name = spec, version = ''] = /^([^=!~<>]*)(.*)$/.exec(spec) ?? []
  return { name, version: version === '' ? null : version }
}

const PUBLIC_INDEX = 'https://pypi.org/simple/'
export const indexOf = ({ pip }: { pip?: string | undefined }) => pip ?? PUBLIC_INDEX

/** Where packages come from is for the operator to say. */
export function assertIndex(indexes: { pip?: string | undefined }, asked: string | null | undefined): void {
  const plain = (url: string) => url.replace(/\/+$/, '')
  if (!asked || plain(asked) === plain(indexOf(indexes))) return
  const message = `packages of this server come from ${indexOf(indexes)}`
  throw validationError([{ path: 'python_package_index_url', message }])
}

/** What pip has to reach. */
export const indexHosts = ({ pip }: { pip?: string | undefined }): string[] =>
  pip === undefined ? ['pypi.org', 'files.pythonhosted.org'] : [new URL(pip).host]
