import { Env, EXECUTION_STATUSES, LANGUAGES } from '@ash-ai/shared'
import { z } from 'zod'
import { V1Page } from './session-schemas.ts'

const MAX_CODE_CHARS = 102_400

export const V1Execute = z.object({
  code: z.string().min(1, 'must not be empty').max(MAX_CODE_CHARS),
  language: z.enum(LANGUAGES).nullish(),
  timeout: z.number().int().min(1).max(3600).nullish(),
  event: z.record(z.string(), z.unknown()).nullish(),
  env_vars: Env.nullish(),
})
export type V1Execute = z.infer<typeof V1Execute>

export const SyncQuery = z.object({
  poll_interval: z.coerce.number().min(0.1).max(10).default(0.5),
  sync_timeout: z.coerce.number().int().min(10).max(3600).default(300),
})

export const V1ExecutionList = V1Page.extend({ status: z.enum(EXECUTION_STATUSES).optional() })
export type V1ExecutionList = z.infer<typeof V1ExecutionList>

export const OfExecution = z.object({ eid: z.string().min(1).max(64) })
