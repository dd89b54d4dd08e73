import { z } from 'zod'

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
