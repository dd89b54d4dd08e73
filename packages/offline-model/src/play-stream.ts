import type { Exchange, Outcome } from './exchange.ts'
import type { ReplyMessage } from './reply-message.ts'
import { type Step, streamErrorOf } from './script.ts'
import { encodeEvent, type StreamEvent, streamEvents } from './stream-events.ts'

/** Sends a message as server-sent events, at the step's pace, up to its fault if it has one. */
export async function playStream(message: ReplyMessage, exchange: Exchange): Promise<Outcome> {
  const { step, response, client } = exchange
  openStream(exchange)
  const pace = { started: false, deltas: 0 }
  for (const event of streamEvents(message, step)) {
    if (isFaultDue(event, step, pace.deltas)) return playFault(exchange)
    await keepPace(event, exchange, pace)
    if (client.hasLeft) return 'client left'
    await client.write(encodeEvent(event))
  }
  response.end()
  return 'answered'
}

function openStream({ response, requestId }: Exchange): void {
  const headers = { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' }
  response.writeHead(200, { ...headers, 'request-id': requestId })
  response.flushHeaders()
}

// A reply with fewer deltas than `afterDeltas` still must not come through whole, hence the second line.
function isFaultDue(event: StreamEvent, step: Step, deltas: number): boolean {
  if (!(step.hang ?? step.disconnect ?? step.malformed ?? step.streamError)) return false
  if (event.type === 'message_delta') return true
  const isInsideBlock = event.type === 'content_block_delta' || event.type === 'content_block_stop'
  return isInsideBlock && deltas >= (step.afterDeltas ?? 1)
}

async function playFault({ step, client, response }: Exchange): Promise<Outcome> {
  if (step.hang !== undefined) {
    await client.leaves()
    return 'hung'
  }
  if (step.disconnect !== undefined) {
    response.destroy()
    return 'disconnected'
  }
  if (step.streamError !== undefined) {
    const { type = 'overloaded_error', message } = streamErrorOf(step.streamError)
    response.end(encodeEvent({ type: 'error', error: { type, message } }))
    return 'error'
  }
  response.end('event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"del\n\n')
  return 'malformed'
}

type Pace = { started: boolean; deltas: number }

async function keepPace(event: StreamEvent, { step, client }: Exchange, pace: Pace): Promise<void> {
  if (event.type === 'content_block_start' && !pace.started) {
    pace.started = true
    await client.pause(step.firstTokenMs)
  }
  if (event.type !== 'content_block_delta') return
  if (pace.deltas > 0) await client.pause(step.chunkDelayMs)
  pace.deltas += 1
}
