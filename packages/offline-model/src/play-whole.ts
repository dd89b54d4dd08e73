import { sendError, sendJson } from './api-replies.ts'
import type { Exchange, Outcome } from './exchange.ts'
import type { ReplyMessage } from './reply-message.ts'
import { type Step, streamErrorOf } from './script.ts'

/** Sends a message as one JSON document. A fault meant for a stream takes the nearest form it can have here. */
export async function playWhole(message: ReplyMessage, exchange: Exchange): Promise<Outcome> {
  const { step, response, requestId } = exchange
  if (step.streamError !== undefined) {
    sendError(response, requestId, { status: 529, ...streamErrorOf(step.streamError) })
    return 'error'
  }
  if (isCutShort(step)) return sendFirstHalf(message, exchange)
  sendJson(response, 200, message, { 'request-id': requestId })
  return 'answered'
}

function isCutShort(step: Step): boolean {
  return step.hang === 'mid' || step.disconnect === 'mid' || step.malformed !== undefined
}

async function sendFirstHalf(message: ReplyMessage, exchange: Exchange): Promise<Outcome> {
  const { step, response, client, requestId } = exchange
  const json = JSON.stringify(message)
  response.writeHead(200, { 'content-type': 'application/json', 'request-id': requestId })
  await client.write(json.slice(0, json.length / 2))
  if (step.hang === 'mid') {
    await client.leaves()
    return 'hung'
  }
  if (step.disconnect === 'mid') {
    response.destroy()
    return 'disconnected'
  }
  response.end()
  return 'malformed'
}
