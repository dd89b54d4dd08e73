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
}).meta({ id: 'MessageSend' })
export type MessageSend = z.infer<typeof MessageSend>

/** Everything a client may see of a session is one of these, in this order of `seq`. */
export const EVENT_TYPES = [
  'turn',
  'message',
  'egress_denied',
  'limit',
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
