import { SessionCreate, SessionMode } from '@ash-ai/shared'
import { z } from 'zod'
import { Dependencies, IndexUrl } from './dependencies.ts'
import { Resources } from './resources.ts'

/** An id that a client chose. Ours are accepted wherever one is. */
const ExternalId = z
  .string()
  .regex(
    /^[A-Za-z0-9_][A-Za-z0-9._:@-]{0,63}$/,
    'must be 1 to 64 letters, digits, ".", "_", ":", "@" or "-", starting with a letter, a digit or "_"',
  )

export const TemplateId = z.string().min(1).max(64)
const Seconds = z.number().int().min(1).max(3600)

export const V1SessionCreate = Resources.extend({
  id: ExternalId.nullish(),
  template_id: TemplateId,
  mode: SessionMode.nullish(),
  agent_id: SessionCreate.shape.agentId.nullish(),
  timeout: Seconds.nullish(),
  resources: Resources.nullish(),
  env_vars: SessionCreate.shape.env.nullish(),
  event: z.record(z.string(), z.unknown()).nullish(),
  dependencies: Dependencies.default([]),
  install_timeout: z.number().int().min(30).max(1800).nullish(),
  fail_on_dependency_error: z.boolean().nullish(),
  allow_version_conflicts: z.boolean().nullish(),
  python_package_index_url: IndexUrl,
})
export type V1SessionCreate = z.infer<typeof V1SessionCreate>

export const InstallRequest = z.object({
  dependencies: Dependencies.min(1),
  python_package_index_url: IndexUrl,
})

export const V1_SESSION_STATUSES = [
  'creating',
  'running',
  'completed',
  'failed',
  'timeout',
  'terminated',
] as const
export type V1SessionStatus = (typeof V1_SESSION_STATUSES)[number]

export const V1Page = z.object({
  limit: z.coerce.number().int().min(1).max(200).default(50),
  offset: z.coerce.number().int().min(0).max(100_000).default(0),
})
export type V1Page = z.infer<typeof V1Page>

export const V1SessionList = V1Page.extend({
  status: z.enum(V1_SESSION_STATUSES).optional(),
  template_id: TemplateId.optional(),
})
export type V1SessionList = z.infer<typeof V1SessionList>

export const OfSession = z.object({ id: ExternalId })
