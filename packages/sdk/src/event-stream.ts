import { isAshError, parseSSE } from '@ash-ai/shared'
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
export interface FirstStream {
  opening: Promise<ByteStream>
  again: () => Promise<ByteStream>
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
  const position = new LogPosition(options.after)
  const open = () =>
    http.stream({
      ...options,
      method: 'GET',
      path: sessionPath(sessionId, 'stream'),
      headers: { 'last-event-id': String(position.seq) },
    })
  let isPlaced = first === undefined
  let stream = first?.opening ?? open()
  for (let tries = 0; ; stream = isPlaced || !first ? open() : first.again()) {
    let failure: Error = new AshConnectionError('lost', 'The server closed the event stream')
    try {
      for await (const frame of parseSSE(await stream)) {
        if (frame.id !== undefined && !position.advance(frame.id)) continue
        tries = 0
        isPlaced = true
        yield toEvent(frame)
      }
    } catch (error) {
      if (!isPassing(error)) throw error
      failure = error
    }
    if (tries >= MAX_RECONNECTS) throw failure
    await sleep(backoffMs(tries++), options.signal)
  }
}

/** A connection that broke, or a server (or the proxy before it) that is just restarting. */
function isPassing(error: unknown): error is Error {
  if (error instanceof AshConnectionError || isAshError(error, 'server_stopping')) return true
  const status = error instanceof AshReplyError ? error.status : undefined
  return status === 502 || status === 503 || status === 504
}
