import { z } from 'zod'
import { IsoTime } from './common-schemas.ts'

const MAX_SECRET_CHARS = 16 * 1024

/** A label of a host name: inside, the credential is `http://<name>.credentials.ash/`. */
export const CredentialName = z
  .string()
  .regex(
    /^(?!xn--)[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$/,
    'must be 1 to 40 small letters, digits or "-", neither first nor last a "-"',
  )

const HeaderName = z
  .string()
  .regex(/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$/, 'must be the name of a header')
  .refine(
    (name) =>
      !/^(host|content-.*|transfer-encoding|connection|keep-alive|proxy-.*|te|trailer|upgrade|expect|cookie|x-ash-.*)$/i.test(
        name,
      ),
    'must be a header that can carry a credential',
  )

/** How a request is given the secret. */
export const CredentialScheme = z
  .discriminatedUnion('type', [
    z.strictObject({ type: z.literal('bearer') }).describe('`Authorization: Bearer <secret>`'),
    z.strictObject({ type: z.literal('header'), name: HeaderName }).describe('`<name>: <secret>`'),
    z
      .strictObject({
        type: z.literal('basic'),
        username: z
          .string()
          .max(200)
          .regex(/^[^\p{Cc}:]*$/u, 'must not hold ":" or control characters'),
      })
      .describe('`Authorization: Basic …`, the secret being the password'),
    z
      .strictObject({ type: z.literal('query'), name: z.string().min(1).max(100) })
      .describe('`?<name>=<secret>`; such addresses end up in the logs of the other side'),
  ])
  .meta({ id: 'CredentialScheme' })
export type CredentialScheme = z.infer<typeof CredentialScheme>

const CredentialHosts = z
  .array(z.string().min(1).max(300))
  .min(1)
  .max(20)
  .describe(
    'host or host:port, spoken to over https; or http://host:port. No wildcards. The first is the default',
  )

export const CredentialCreate = z
  .strictObject({
    name: CredentialName,
    hosts: CredentialHosts,
    secret: z
      .string()
      .min(1)
      .max(MAX_SECRET_CHARS)
      .regex(/^\P{Cc}*$/u, 'must not hold line breaks or other control characters'),
    scheme: CredentialScheme,
  })
  .refine(
    ({ scheme, secret }) => !isInHeader(scheme) || /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(secret),
    {
      path: ['secret'],
      message: 'must be plain ASCII without spaces at its ends, to be sent in a header',
    },
  )
  .meta({ id: 'CredentialCreate' })
export type CredentialCreate = z.infer<typeof CredentialCreate>

/** A credential as anybody may see it: everything but the secret. */
export const Credential = z
  .object({
    name: z.string(),
    hosts: z.array(z.string()),
    scheme: CredentialScheme,
    createdAt: IsoTime,
    updatedAt: IsoTime.describe('When the secret was last replaced'),
  })
  .meta({ id: 'Credential' })
export type Credential = z.infer<typeof Credential>

const isInHeader = ({ type }: CredentialScheme) => type === 'bearer' || type === 'header'
