import { z } from 'zod'
import { isToolInput, MAX_TOOL_INPUT_CHARS, MAX_TOOL_INPUT_DEPTH } from '../tool-input.ts'
import { IsoTime } from './common-schemas.ts'

const MAX_TIMEOUT_MS = 2 ** 31 - 1 // The longest a timer can wait.
const MAX_TEXT_CHARS = 10_000

const ToolPattern = z
  .string()
  .regex(
    /^[A-Za-z0-9_.:*-]{1,200}$/,
    'must be the name of a tool, in which * stands for any characters; finer rules go into permissions.ask of the agent’s .claude/settings.json',
  )

/** Whether people are asked, about what, and what happens when nobody answers. */
export const PermissionSettings = z
  .strictObject({
    ask: z
      .union([z.boolean(), z.array(ToolPattern).max(100)])
      .optional()
      .describe(
        'Names of tools: each use is asked about. true: what the permission mode asks about, with bypassPermissions every tool. [] only questions. Default: nobody is asked',
      ),
    timeoutMs: z
      .number()
      .int()
      .min(1)
      .max(MAX_TIMEOUT_MS)
      .optional()
      .describe('How long a request waits. Default: ASH_PERMISSION_TIMEOUT_MS of the server'),
    onTimeout: z
      .enum(['deny', 'interrupt'])
      .optional()
      .describe('deny: the agent hears that nobody answered and goes on; interrupt: the turn ends'),
  })
  .meta({ id: 'PermissionSettings' })
export type PermissionSettings = z.infer<typeof PermissionSettings>

/** A request that waits for an answer. */
export const PermissionRequest = z
  .object({
    requestId: z.string(),
    turnId: z.string(),
    kind: z.enum(['permission', 'question']).describe('question: the agent asks for `answers`'),
    tool: z.string(),
    input: z.record(z.string(), z.unknown()).describe('What the agent would call the tool with'),
    toolUseId: z.string().optional(),
    reason: z.string().optional().describe('Why the agent SDK asks'),
    status: z.literal('pending'),
    createdAt: IsoTime,
    expiresAt: IsoTime,
  })
  .meta({ id: 'PermissionRequest' })
export type PermissionRequest = z.infer<typeof PermissionRequest>

const ToolInput = z
  .record(z.string(), z.unknown())
  .refine(
    (input) => isToolInput(input),
    `must have at most ${MAX_TOOL_INPUT_CHARS} characters and ${MAX_TOOL_INPUT_DEPTH} levels`,
  )

export const PermissionAnswer = z
  .discriminatedUnion('behavior', [
    z.strictObject({
      behavior: z.literal('allow'),
      updatedInput: ToolInput.optional().describe('Used instead of `input`'),
      answers: z
        .record(z.string().max(MAX_TEXT_CHARS), z.string().max(MAX_TEXT_CHARS))
        .refine((answers) => isToolInput(answers), 'must be shorter')
        .optional()
        .describe('Of a question: the text of each question, and its answer'),
    }),
    z.strictObject({
      behavior: z.literal('deny'),
      message: z.string().max(MAX_TEXT_CHARS).optional().describe('The agent reads it'),
      interrupt: z.boolean().optional().describe('End the turn instead of letting the agent go on'),
    }),
  ])
  .meta({ id: 'PermissionAnswer' })
export type PermissionAnswer = z.infer<typeof PermissionAnswer>

/** What became of a request. */
export const PermissionResolution = z
  .object({
    requestId: z.string(),
    turnId: z.string(),
    status: z
      .enum(['allowed', 'denied', 'expired', 'withdrawn'])
      .describe('expired: nobody answered in time; withdrawn: the agent needs no answer any more'),
    updatedInput: z.record(z.string(), z.unknown()).optional(),
    message: z.string().optional(),
  })
  .meta({ id: 'PermissionResolution' })
export type PermissionResolution = z.infer<typeof PermissionResolution>

/** Data of a `permission_request` event: one when the agent asks, and one when that is settled. */
export type PermissionEventData = PermissionRequest | PermissionResolution
