import { z } from 'zod'
import { MAX_TERMINAL_SIDE } from '../constants.ts'
import { IsoTime } from './common-schemas.ts'

export const TerminalId = z.uuid({ error: 'must be a UUID' })

const side = (otherwise: number) => z.coerce.number().int().min(1).max(MAX_TERMINAL_SIDE).default(otherwise)
const DEFAULT_COLS = 80
const DEFAULT_ROWS = 24
const MAX_COMMAND_CHARS = 100_000

export const TerminalCreate = z
  .strictObject({
    cols: side(DEFAULT_COLS),
    rows: side(DEFAULT_ROWS),
    command: z
      .string()
      .min(1)
      .max(MAX_COMMAND_CHARS)
      .refine((text) => !text.includes('\0'), 'must not contain NUL')
      .optional()
      .describe('For the shell; without it the terminal is an interactive shell'),
  })
  .meta({ id: 'TerminalCreate' })
export type TerminalCreate = z.input<typeof TerminalCreate>

/** How a viewer connects. */
export const TerminalConnect = z.object({
  id: TerminalId.optional().describe('A terminal that is open already; without it, a new one'),
  cols: z.coerce.number().int().min(1).max(MAX_TERMINAL_SIDE).optional(),
  rows: z.coerce.number().int().min(1).max(MAX_TERMINAL_SIDE).optional(),
  token: z.string().max(1000).optional().describe('In place of a key, where no header can be sent'),
})

const Exit = { code: z.number().int().nullable(), signal: z.number().int().nullable() }

export const Terminal = z
  .object({
    id: TerminalId,
    command: z.string().optional(),
    cols: z.number().int(),
    rows: z.number().int(),
    viewers: z.number().int().describe('Connections that see it at this moment'),
    createdAt: IsoTime,
    exit: z.object(Exit).optional().describe('It has ended while nobody looked, and is kept for a minute'),
  })
  .meta({ id: 'Terminal' })
export type Terminal = z.infer<typeof Terminal>

export const TerminalToken = z.object({ token: z.string(), expiresAt: IsoTime }).meta({ id: 'TerminalToken' })
export type TerminalToken = z.infer<typeof TerminalToken>

const Size = {
  cols: z.number().int().min(1).max(MAX_TERMINAL_SIDE),
  rows: z.number().int().min(1).max(MAX_TERMINAL_SIDE),
}

/** What a viewer may say in a text frame; bytes for the program are binary frames. */
export const ViewerControl = z.strictObject({ type: z.literal('resize'), ...Size })
export type ViewerControl = z.infer<typeof ViewerControl>

/** What a viewer is told in a text frame. */
export const TerminalControl = z.discriminatedUnion('type', [
  z.object({ type: z.literal('ready'), id: TerminalId, ...Size }),
  z.object({ type: z.literal('resize'), ...Size }),
  z.object({ type: z.literal('exit'), ...Exit }),
])
export type TerminalControl = z.infer<typeof TerminalControl>

/** Why the server closes the connection of a viewer, beside 1000 when the program has ended. */
export const TERMINAL_CLOSE = {
  serverStopping: 1001,
  invalid: 1008,
  sessionPaused: 4001,
  sandboxGone: 4002,
  tooSlow: 4003,
} as const
