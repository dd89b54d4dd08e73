import { z } from 'zod'
import { Env, IsoTime } from './common-schemas.ts'
import { LanguageSchema, RunTimeout } from './execution-schemas.ts'
import { Packages } from './package-schemas.ts'
import { CheckpointSettings, Limits, Network } from './sandbox-settings.ts'

export const TemplateName = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/,
    'must be 1 to 64 letters, digits, ".", "-" or "_", starting with a letter or digit',
  )

export const SessionMode = z.enum(['ephemeral', 'persistent']).meta({ id: 'SessionMode' })
export type SessionMode = z.infer<typeof SessionMode>

/** How many sandboxes wait for work, with the interpreter up. */
const WarmPool = z.strictObject({
  min: z.number().int().min(0).max(100).default(0).describe('Kept whether or not the template is used'),
  target: z.number().int().min(0).max(100).default(0).describe('Kept while it is used'),
  idle: z
    .number()
    .int()
    .min(1_000)
    .max(86_400_000)
    .default(300_000)
    .describe('Milliseconds without use after which only `min` are kept'),
})

export const WarmPools = z
  .strictObject({ ephemeral: WarmPool.optional(), persistent: WarmPool.optional() })
  .meta({ id: 'WarmPools' })
export type WarmPools = z.infer<typeof WarmPools>

/** A named environment: what sessions made from it begin with. */
export const TemplateSettings = z.strictObject({
  description: z.string().max(1000).optional(),
  runtime: z
    .string()
    .regex(/^[a-z][a-z0-9.]{0,31}$/, 'must be a name such as "python3" or "node"')
    .optional()
    .describe('Interpreter of the first language, by the name of its program, such as python3.11'),
  languages: z
    .array(LanguageSchema)
    .min(1)
    .max(3)
    .optional()
    .describe('That may be run; the first is the default'),
  image: z.string().min(1).max(512).optional().describe('For providers that run containers'),
  packages: Packages.optional().describe('Installed once, inside the sandbox'),
  env: Env.optional(),
  limits: Limits.partial().optional(),
  network: Network.optional(),
  timeout: RunTimeout.optional().describe('Of a run that names none, in milliseconds'),
  idleTimeout: z
    .number()
    .int()
    .min(1_000)
    .max(30 * 86_400_000)
    .optional()
    .describe('Milliseconds without work after which a session keeps no process; default 30 minutes'),
  lifetime: z
    .number()
    .int()
    .min(1_000)
    .max(30 * 86_400_000)
    .optional()
    .describe('Milliseconds after which a sandbox is replaced, when it has nothing to do; default 6 hours'),
  checkpoints: CheckpointSettings.optional(),
  warm: WarmPools.optional(),
})
export type TemplateSettings = z.infer<typeof TemplateSettings>

export const TemplateCreate = TemplateSettings.extend({ name: TemplateName }).meta({ id: 'TemplateCreate' })
export type TemplateCreate = z.input<typeof TemplateCreate>

export const Template = TemplateSettings.extend({
  name: z.string(),
  env: z.record(z.string(), z.literal('***')).describe('Names only: values are never shown'),
  languages: z.array(LanguageSchema),
  isBuiltIn: z.boolean(),
  createdAt: IsoTime.optional(),
  updatedAt: IsoTime.optional(),
}).meta({ id: 'Template' })
export type Template = z.infer<typeof Template>
