import { sendError } from './api-replies.ts'
import type { Exchange, Outcome } from './exchange.ts'
import { playStream } from './play-stream.ts'
import { playWhole } from './play-whole.ts'
import { buildReply } from './reply-message.ts'

/** Sends the reply that a step describes, or commits its fault. */
export async function playStep(exchange: Exchange): Promise<Outcome> {
  const { step, context, client } = exchange
  await client.pause(step.delayMs)
  if (client.hasLeft) return 'client left'
  const outcome = await playEarlyFault(exchange)
  if (outcome !== undefined) return outcome
  const message = buildReply(step, context)
  const isStream = context.body.stream === true && step.malformed !== 'json'
  return isStream ? playStream(message, exchange) : playWhole(message, exchange)
}

/** The faults that strike before there is any message. */
async function playEarlyFault({ step, client, response, requestId }: Exchange): Promise<Outcome | undefined> {
  if (step.hang === 'headers') {
    await client.leaves()
    return 'hung'
  }
  if (step.disconnect === 'before') {
    response.destroy()
    return 'disconnected'
  }
  if (step.error !== undefined) {
    const { status = 500, ...rest } = typeof step.error === 'number' ? { status: step.error } : step.error
    sendError(response, requestId, { message: `Scripted error ${status}`, ...rest, status })
    return 'error'
  }
  if (step.malformed !== 'html') return undefined
  response.writeHead(200, { 'content-type': 'text/html' })
  response.end('<!doctype html><title>Sign in</title><p>Sign in to use this network.</p>')
  return 'malformed'
}
