import { AshError } from '@ash-ai/shared'
import type { SSEWriter } from '../http/sse-writer.ts'
import type { Cursor, EventLog, Frame } from './event-log.ts'

export interface LogStream {
  log: EventLog
  after: Cursor
  /** Nothing follows the frame for which this is true; without it the stream goes on. */
  isLast?: (frame: Frame) => boolean
  /** Hears of each batch that was handed to the connection. */
  onSent?: (frames: Frame[]) => void
  /** Ends the stream from this side. */
  closing?: AbortSignal
}

const MAX_READERS = 1_000

export function assertRoomForReader({ readers }: EventLog): void {
  if (readers < MAX_READERS) return
  throw new AshError('too_many_readers', `${MAX_READERS} streams of this session are open; close some`)
}

/** Copies frames to the client until one of them is the last, or the client is gone. */
export async function streamLog(writer: SSEWriter, stream: LogStream): Promise<void> {
  try {
    if (await copyFrames(writer, stream)) return
  } catch (error) {
    writer.destroy()
    throw error
  }
  // Of a turn only a broken connection tells the client that this is not its end.
  if (stream.isLast) writer.destroy()
  else await writer.end()
}

/** True where the last frame was sent. */
async function copyFrames(writer: SSEWriter, stream: LogStream): Promise<boolean> {
  const { log, after, isLast, onSent, closing } = stream
  const signal = closing ? AbortSignal.any([writer.signal, closing]) : writer.signal
  for await (const frames of log.read(after, signal)) {
    const last = isLast ? frames.findIndex(isLast) : -1
    const sent = last < 0 ? frames : frames.slice(0, last + 1)
    const text = sent.map((frame) => frame.text).join('')
    if (last >= 0) await writer.end(text)
    // A quick answer leaves together with the acknowledgement, which waits 2 ms for it at most.
    else if (isLast && sent.length === 1 && sent[0]?.type === 'turn') writer.hold(text)
    else await writer.write(text)
    onSent?.(sent)
    if (last >= 0) return true
  }
  return false
}
