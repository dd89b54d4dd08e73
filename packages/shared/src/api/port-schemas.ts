import { z } from 'zod'
import { IsoTime } from './common-schemas.ts'

const MAX_PORT = 65_535
export const PortNumber = z.coerce.number().int().min(1).max(MAX_PORT)

/** A TCP port on which something inside a sandbox waits for connections. */
export const Port = z
  .object({
    port: z.number().int(),
    address: z.string().describe('As the program gave it: 127.0.0.1, 0.0.0.0, ::1, ::'),
    pid: z.number().int().optional().describe('Inside the sandbox, where it can be told'),
    command: z.string().optional(),
  })
  .meta({ id: 'Port' })
export type Port = z.infer<typeof Port>

const MAX_LINK_SECONDS = 7 * 24 * 3600
export const PreviewLinkCreate = z
  .strictObject({
    expiresIn: z
      .number()
      .int()
      .min(1)
      .max(MAX_LINK_SECONDS)
      .default(3600)
      .describe('Seconds, at most 7 days'),
    wake: z.boolean().default(false).describe('Whoever opens it may wake the session when it is paused'),
  })
  .meta({ id: 'PreviewLinkCreate' })
export type PreviewLinkCreate = z.input<typeof PreviewLinkCreate>

export const PreviewLink = z.object({ url: z.string(), expiresAt: IsoTime }).meta({ id: 'PreviewLink' })
export type PreviewLink = z.infer<typeof PreviewLink>
