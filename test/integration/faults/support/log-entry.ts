import type { SessionEvent } from '@ash-ai/sdk'
import type { SSEFrame } from '@ash-ai/shared'

/** An entry of a session's log, wherever it was read. */
export interface LogEntry {
  seq: number
  type: string
  /** JSON text, byte for byte. */
  data: string
}

/** Ids of previews have a second number; they are no entries. */
export const isEntryId = (id: string | undefined) => id !== undefined && /^\d+$/.test(id)

export function entryOfFrame({ id, event = 'message', data }: SSEFrame): LogEntry {
  return { seq: Number(id), type: event, data }
}

/** What the SDK makes of an entry, with its data as a value: the SDK parses it. */
export function valueOfEvent(event: SessionEvent): { seq: number; type: string; data: unknown } {
  const { id, type, ...rest } = event
  const seq = Number(id)
  if (event.type === 'message') return { seq, type, data: event.message }
  if (event.type === 'checkpoint') return { seq, type, data: event.checkpoint }
  if ('data' in event) return { seq, type, data: event.data }
  return { seq, type, data: rest }
}

export function valueOfEntry({ seq, type, data }: LogEntry): { seq: number; type: string; data: unknown } {
  return { seq, type, data: JSON.parse(data) }
}

export const isEndOfSession = (type: string, data: unknown) =>
  type === 'status' && (data as { status?: string }).status === 'ended'
