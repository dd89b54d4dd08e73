import { z } from 'zod'
import { IsoTime } from './common-schemas.ts'

const MAX_PACKAGES = 100
const MAX_SPEC_CHARS = 200

const PIP_VERSION = '(?:==|!=|~=|>=|<=|<|>)[A-Za-z0-9][A-Za-z0-9.*+!_-]*'
const PIP_SPEC = new RegExp(
  `^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\\[[A-Za-z0-9._-]+(?:,[A-Za-z0-9._-]+)*\\])?(?:${PIP_VERSION}(?:,${PIP_VERSION})*)?$`,
)

const NPM_NAME = '[A-Za-z0-9][A-Za-z0-9._-]*'
const NPM_VERSION = '(?:[~^]|[<>]=?|=)?[A-Za-z0-9*][A-Za-z0-9.*+-]*'
const NPM_SPEC = new RegExp(
  `^(?:@${NPM_NAME}/)?${NPM_NAME}(?:@${NPM_VERSION}(?: (?:\\|\\| )?${NPM_VERSION})*)?$`,
)

/** Names and version ranges only: they become words of a command, so nothing else may be said with them. */
const specs = (pattern: RegExp, example: string) =>
  z
    .array(
      z
        .string()
        .max(MAX_SPEC_CHARS)
        .regex(
          pattern,
          `must be a name, perhaps with a version range, such as "${example}"; no URL, no option`,
        ),
    )
    .max(MAX_PACKAGES)

/** Installed for an agent version before its install.sh runs. */
export const Packages = z
  .strictObject({
    pip: specs(PIP_SPEC, 'requests>=2.31,<3').optional(),
    npm: specs(NPM_SPEC, 'left-pad@^1.3.0').optional(),
  })
  .meta({ id: 'Packages' })
export type Packages = z.infer<typeof Packages>

/** Into the environment of one session, which it keeps. */
export const PackageInstallRequest = Packages.extend({
  async: z.boolean().optional().describe('Answer 202 at once; ask for the list later'),
}).refine(({ pip = [], npm = [] }) => pip.length + npm.length > 0, {
  error: 'must name at least one package, in `pip` or `npm`',
  path: ['pip'],
})
export type PackageInstallRequest = z.infer<typeof PackageInstallRequest>

/** What became of the newest installation in a session. */
export const PackageInstall = z
  .object({
    status: z.enum(['running', 'completed', 'failed']),
    packages: Packages,
    warnings: z.array(z.string()).describe('Of `pip check`: what does not fit together'),
    restartKernels: z
      .boolean()
      .describe('Kernels that were there before do not see what was installed: restart them'),
    error: z.object({ code: z.string(), message: z.string() }).optional(),
    startedAt: IsoTime,
    finishedAt: IsoTime.optional(),
  })
  .meta({ id: 'PackageInstall' })
export type PackageInstall = z.infer<typeof PackageInstall>

const InstalledPackage = z.object({ name: z.string(), version: z.string() })

export const InstalledPackages = z
  .object({
    pip: z.array(InstalledPackage).describe("In the session's own environment; not what the machine has"),
    npm: z.array(InstalledPackage),
    install: PackageInstall.optional().describe('The newest one that this server knows of'),
  })
  .meta({ id: 'InstalledPackages' })
export type InstalledPackages = z.infer<typeof InstalledPackages>
