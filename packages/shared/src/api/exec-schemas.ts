import { z } from 'zod'
import { DEFAULT_EXEC_TIMEOUT_MS, MAX_EXEC_TIMEOUT_MS } from '../constants.ts'

export const ExecRequest = z
  .strictObject({
    command: z.string().min(1, 'must not be empty').max(100_000),
    timeout: z
      .number()
      .int()
      .min(1)
      .max(MAX_EXEC_TIMEOUT_MS)
      .default(DEFAULT_EXEC_TIMEOUT_MS)
      .describe('Milliseconds'),
  })
  .meta({ id: 'ExecRequest' })
export type ExecRequest = z.input<typeof ExecRequest>

export const ExecReply = z
  .object({
    exitCode: z.number().int().nullable(),
    signal: z.string().nullable(),
    stdout: z.string(),
    stderr: z.string(),
    truncated: z.boolean(),
    timedOut: z.boolean(),
  })
  .meta({ id: 'ExecReply' })
export type ExecReply = z.infer<typeof ExecReply>
