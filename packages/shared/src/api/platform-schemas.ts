import { z } from 'zod'

export const Health = z
  .object({
    status: z.literal('ok'),
    version: z.string(),
    uptimeSeconds: z.number(),
    database: z.enum(['sqlite', 'postgres']),
    provider: z.string(),
    isolation: z.string(),
    limits: z
      .object({ backend: z.string(), enforcement: z.record(z.string(), z.enum(['hard', 'polled', 'none'])) })
      .describe('What holds the limits of sandboxes here, and how well'),
    model: z
      .enum(['anthropic', 'offline'])
      .describe('Whether answers come from the model API or the offline model'),
    sandboxes: z.object({ live: z.number().int(), max: z.number().int() }),
    snapshotStore: z
      .enum(['ok', 'unreachable'])
      .optional()
      .describe('Whether ASH_SNAPSHOT_URL answered when it was last asked'),
  })
  .meta({ id: 'Health' })
export type Health = z.infer<typeof Health>

export const Ready = z
  .object({ ready: z.boolean(), checks: z.record(z.string(), z.string()) })
  .meta({ id: 'Ready' })
export type Ready = z.infer<typeof Ready>
