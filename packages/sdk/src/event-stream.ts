import { isAshError, parseSSE, type SSEFrame } from '@ash-ai/shared'
import type { ByteStream } from './byte-stream.ts'
import { sleep } from './deadline.ts'
import { AshConnectionError, AshReplyError } from './errors.ts'
import { LogPosition, type SessionEvent, toEvent } from './events.ts'
import type { Http, RequestOptions } from './http.ts'
import { sessionPath } from './paths.ts'
import { backoffMs } from './retry.ts'

export interface FollowOptions extends RequestOptions {
  /** Begin after this entry of the log; default with the first. */
  after?: number | undefined
}

/** Connections tried in a row that bring nothing new: about 20 s, enough for a server to restart. */
const MAX_RECONNECTS = 8

/** A stream that is being opened, and how to ask for it again while it has brought nothing. */
interface FirstStream {
  opening: Promise<ByteStream>
  again: () => Promise<ByteStream>
}

/** Where frames come from, over as many connections as that takes. */
interface FrameSource {
  first?: FirstStream | undefined
  /** Goes on after an entry of the log; undefined where nothing can follow it. */
  open(after: number): Promise<ByteStream> | undefined
  after?: number | undefined
  signal?: AbortSignal | undefined
}

/**
 * The events of a session's log, each once, over as many connections as that takes. With `first` the position in
 * the log is that of its first event; without, the log is followed from `after`. Never ends by itself.
 */
export async function* readLog(
  http: Http,
  sessionId: string,
  options: FollowOptions,
  first?: FirstStream,
): AsyncGenerator<SessionEvent> {
  const open = (after: number) => openLog(http, sessionId, after, options)
  const { after, signal } = options
  for await (const frame of readFrames({ first, open, after, signal })) yield toEvent(frame)
}

export function openLog(
  http: Http,
  sessionId: string,
  after: number,
  options: RequestOptions,
): Promise<ByteStream> {
  return http.stream({
    ...options,
    method: 'GET',
    path: sessionPath(sessionId, 'stream'),
    headers: { 'last-event-id': String(after) },
  })
}

/** Frames, those with an id once each. Ends where the source has nothing more to open. */
export async function* readFrames(source: FrameSource): AsyncGenerator<SSEFrame> {
  const { first, signal } = source
  const position = new LogPosition(source.after)
  let isPlaced = first === undefined
  const next = () => (isPlaced || !first ? source.open(position.seq) : first.again())
  for (let stream = first?.opening ?? next(), tries = 0; stream; stream = next()) {
    let failure: Error = new AshConnectionError('lost', 'The server closed the event stream')
    try {
      for await (const frame of parseSSE(await stream)) {
        if (frame.id !== undefined && !position.advance(frame.id)) continue
        tries = 0
        isPlaced = true
        yield frame
      }
    } catch (error) {
      if (!isPassing(error)) throw error
      failure = error
    }
    if (tries >= MAX_RECONNECTS) throw failure
    await sleep(backoffMs(tries++), signal)
  }
}

/** A connection that broke, or a server (or the proxy before it) that is just restarting. */
function isPassing(error: unknown): error is Error {
  if (error instanceof AshConnectionError || isAshError(error, 'server_stopping')) return true
  const status = error instanceof AshReplyError ? error.status : undefined
  return status === 502 || status === 503 || status === 504
}
