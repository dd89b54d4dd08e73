import type {
  CheckpointEventData,
  DoneEventData,
  ErrorEventData,
  ExecutionEventData,
  OutputEventData,
  PermissionEventData,
  SSEFrame,
  TurnEventData,
} from '@ash-ai/shared'
import { AshReplyError } from './errors.ts'

/** A message of the Claude Agent SDK exactly as the SDK produced it; its documentation describes the types. */
export interface SdkMessage {
  type: string
  [field: string]: unknown
}

export type ExecutionEvent = { type: 'execution'; id: string } & ExecutionEventData
export type OutputEvent = { type: 'output'; id: string } & OutputEventData

/**
 * One event of a session. `id` is the position in the session's log (`12`), or for a preview that is not
 * stored, the position it follows and a number (`12.3`).
 */
export type SessionEvent =
  | ({ type: 'turn'; id: string } & TurnEventData)
  | { type: 'message'; id: string; message: SdkMessage }
  /** The agent asks (`status: pending`), or what it asked is settled. */
  | ({ type: 'permission_request'; id: string } & PermissionEventData)
  | ({ type: 'done'; id: string } & DoneEventData)
  | ({ type: 'error'; id: string } & ErrorEventData)
  /** How code that was run stands now, and what it wrote. */
  | ExecutionEvent
  | OutputEvent
  /** Files and conversation are saved up to here. */
  | { type: 'checkpoint'; id: string; checkpoint: CheckpointEventData }
  | { type: 'status' | 'log' | 'limit' | 'egress_denied'; id: string; data: Record<string, unknown> }
  /** Of a kind newer than this client. */
  | { type: 'unknown'; id: string; event: string; data: unknown }

export function toEvent(frame: SSEFrame): SessionEvent {
  const data = parseData(frame)
  const event = frame.event ?? 'message'
  const id = frame.id ?? ''
  switch (event) {
    case 'turn':
      return { type: event, id, ...withText<TurnEventData>(data, event, 'turnId') }
    case 'message':
      return { type: event, id, message: withText<SdkMessage>(data, event, 'type') }
    case 'permission_request':
      return { type: event, id, ...withText<PermissionEventData>(data, event, 'requestId', 'status') }
    case 'done':
      return { type: event, id, ...withText<DoneEventData>(data, event, 'turnId') }
    case 'error':
      return { type: event, id, ...withText<ErrorEventData>(data, event, 'code') }
    case 'execution':
      return { type: event, id, ...withText<ExecutionEventData>(data, event, 'executionId', 'status') }
    case 'output':
      return { type: event, id, ...withText<OutputEventData>(data, event, 'executionId', 'stream', 'text') }
    case 'checkpoint':
      return { type: event, id, checkpoint: withText<CheckpointEventData>(data, event, 'id') }
    case 'status':
    case 'log':
    case 'limit':
    case 'egress_denied':
      return { type: event, id, data: withText<Record<string, unknown>>(data, event) }
    default:
      return { type: 'unknown', id, event, data }
  }
}

/** Where a reader stands in a session's log. */
export class LogPosition {
  /** The last complete entry; what `Last-Event-ID` asks to continue after. */
  seq: number
  #preview = 0

  constructor(after = 0) {
    this.seq = after
  }

  /** False if an event with this id was passed before, as happens when a connection is opened again. */
  advance(id: string): boolean {
    const match = /^(\d+)(?:\.(\d+))?$/.exec(id)
    if (match === null) return true
    const seq = Number(match[1])
    const preview = Number(match[2] ?? 0)
    if (seq < this.seq || (seq === this.seq && preview <= this.#preview)) return false
    this.seq = seq
    this.#preview = preview
    return true
  }
}

/** The data of a frame, which is always JSON. */
export function parseData(frame: SSEFrame): unknown {
  try {
    return JSON.parse(frame.data)
  } catch {
    throw new AshReplyError(`The data of a "${frame.event ?? 'message'}" event is not JSON`)
  }
}

/** `data` as an object in which the named fields are strings: those this client itself relies on. */
export function withText<T extends object>(data: unknown, event: string, ...fields: (keyof T & string)[]): T {
  const isObject = typeof data === 'object' && data !== null && !Array.isArray(data)
  if (!isObject || !fields.every((field) => typeof (data as Record<string, unknown>)[field] === 'string')) {
    throw new AshReplyError(`A "${event}" event does not have the form agreed on`)
  }
  return data as T
}
