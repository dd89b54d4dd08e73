import { z } from 'zod'
import { MAX_CONTENT_BLOCKS, MAX_MESSAGE_CHARS } from '../constants.ts'
import { AgentOptions } from './agent-options.ts'
import { IsoTime } from './common-schemas.ts'
import type { ModelUsage } from './sandbox-settings.ts'

const ContentBlock = z.looseObject({ type: z.enum(['text', 'image', 'document']) })

export const MessageSend = AgentOptions.extend({
  content: z.union([
    z.string().min(1, 'must not be empty').max(MAX_MESSAGE_CHARS),
    z.array(ContentBlock).min(1).max(MAX_CONTENT_BLOCKS),
  ]),
  queue: z.boolean().optional().describe('Wait for the turn under way instead of being refused'),
}).meta({ id: 'MessageSend' })
export type MessageSend = z.infer<typeof MessageSend>

/** Names one request, so that it can be repeated without being done twice. */
export const IdempotencyKey = z
  .string()
  .regex(/^[\x21-\x7e]{1,255}$/, 'must be 1 to 255 printable ASCII characters without spaces')

export const SendQuery = z.object({
  async: z
    .enum(['', 'true', '1', 'false', '0'])
    .optional()
    .transform((value) => value !== undefined && value !== 'false' && value !== '0')
    .describe('Answer 202 as soon as the message is durable'),
})

export const AcceptedReply = z
  .object({ turnId: z.string(), status: z.enum(['running', 'queued']) })
  .meta({ id: 'AcceptedTurn' })
export type AcceptedReply = z.infer<typeof AcceptedReply>

/** How a turn came out, for a client that waits instead of reading a stream. */
export interface TurnReply extends DoneEventData {
  /** The agent's final answer, where it gave one. */
  result: string | null
  /** The SDK's own `result` message. */
  message: Record<string, unknown> | null
}

export const InterruptReply = z.object({
  ok: z.literal(true),
  turnId: z.string().optional().describe('The turn that was asked to stop'),
  cancelled: z.array(z.string()).describe('Turns that waited and will not begin'),
})
export type InterruptReply = z.infer<typeof InterruptReply>

/** Everything a client may see of a session is one of these, in this order of `seq`. */
export const EVENT_TYPES = [
  'turn',
  'message',
  'permission_request',
  'execution',
  'output',
  'egress_denied',
  'limit',
  'checkpoint',
  'status',
  'log',
  'error',
  'done',
] as const
export type EventType = (typeof EVENT_TYPES)[number]

/** One entry of a session's log. `data` of a `message` is the SDK's message exactly as the SDK produced it. */
export const LogEntry = z
  .object({
    seq: z.number().int(),
    type: z.enum(EVENT_TYPES),
    turnId: z.string().optional(),
    data: z.unknown(),
    createdAt: IsoTime,
  })
  .meta({ id: 'LogEntry' })
export type LogEntry = z.infer<typeof LogEntry>

export const MessageList = z.object({
  limit: z.coerce.number().int().min(1).max(1000).default(100),
  after: z.coerce.number().int().min(0).default(0).describe('Entries with a larger seq'),
  cursor: z.coerce.number().int().min(0).optional().describe('The nextCursor of the page before'),
})
export type MessageList = z.input<typeof MessageList>

export const EventList = MessageList.extend({
  types: z
    .string()
    .transform((text) => text.split(','))
    .pipe(z.array(z.enum(EVENT_TYPES)))
    .optional()
    .describe('Only these, separated by commas'),
  turnId: z.uuid().optional().describe('Only of this turn'),
})
export type EventList = z.input<typeof EventList>

export interface TurnEventData {
  turnId: string
  content: unknown
}
export interface ErrorEventData {
  turnId?: string
  code: string
  error: string
  retryable: boolean
}
/** A limit of the sandbox was met; the turn goes on where that is possible. */
export interface LimitEventData {
  code: string
  resource: string
  limit: number
  count: number
}
/** A destination that the network policy refuses; `setting` is what would allow it. */
export interface EgressDeniedEventData {
  host: string
  port: number
  reason: string
  setting?: string | undefined
  count: number
}
export interface DoneEventData {
  sessionId: string
  turnId: string
  stopReason: string
  usage?: unknown
  /** What the turn asked of the model, as the model proxy counted it. */
  modelUsage?: ModelUsage
  reopened?: string[]
}
