import { z } from 'zod'

export const Health = z
  .object({
    status: z.literal('ok'),
    version: z.string(),
    uptimeSeconds: z.number(),
    database: z.enum(['sqlite', 'postgres']),
    provider: z.string(),
    isolation: z.string(),
    model: z
      .enum(['anthropic', 'offline'])
      .describe('Whether answers come from the model API or the offline model'),
    sandboxes: z.object({ live: z.number().int(), max: z.number().int() }),
  })
  .meta({ id: 'Health' })
export type Health = z.infer<typeof Health>

export const Ready = z
  .object({ ready: z.boolean(), checks: z.record(z.string(), z.string()) })
  .meta({ id: 'Ready' })
export type Ready = z.infer<typeof Ready>
