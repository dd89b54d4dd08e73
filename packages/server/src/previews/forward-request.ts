import http from 'node:http'
import type { Socket } from 'node:net'
import type { PreviewTarget } from './preview-address.ts'
import { headersOutside } from './preview-headers.ts'
import { PreviewRefusal } from './preview-refusal.ts'

/** A request as it goes inside. */
export interface Outgoing {
  tunnel: Socket
  path: string
  headers: string[]
  target: PreviewTarget
}

/** Time for a client to notice that its upload was refused. */
const LINGER_MS = 500

/** Sends a request inside and passes the answer on, both as they come. Resolves when the answer is out or given up. */
export function forwardRequest(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  outgoing: Outgoing,
): Promise<void> {
  return new Promise((resolve, reject) => {
    if (hasLeft(request)) return resolve()
    const inside = send(request, outgoing)
    const fail = (error: Error) => (response.headersSent ? response.destroy() : reject(brokenOff(error)))
    inside.on('error', fail).on('upgrade', () => fail(new Error('it changed the protocol')))
    inside.on('response', (incoming) => passOn(incoming, response, outgoing.target, fail))
    response.once('close', resolve)
    response.once('finish', () => hangUp(request))
    request.pipe(inside)
  })
}

/** The same for a WebSocket: once it is accepted, bytes pass in both directions. */
export function forwardUpgrade(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  { client, head }: { client: Socket; head: Buffer },
  outgoing: Outgoing,
): Promise<void> {
  return new Promise((resolve, reject) => {
    if (hasLeft(request)) return resolve()
    const upgrade = ['connection', 'Upgrade', 'upgrade', request.headers.upgrade ?? '']
    const inside = send(request, { ...outgoing, headers: [...outgoing.headers, ...upgrade] })
    const fail = (error: Error) => (response.headersSent ? client.destroy() : reject(brokenOff(error)))
    inside.on('error', fail)
    // Refused: an answer as to any other request.
    inside.on('response', (incoming) => passOn(incoming, response, outgoing.target, fail))
    inside.on('upgrade', (incoming, tunnel: Socket, first: Buffer) => {
      response.detachSocket(client)
      client.write(acceptance(incoming, outgoing.target))
      client.write(first)
      tunnel.write(head)
      connect(client, tunnel)
      connect(tunnel, client)
    })
    client.once('close', resolve)
    inside.end()
  })
}

/** While the session woke, or the tunnel was made; nothing would say so a second time. */
const hasLeft = ({ socket }: http.IncomingMessage) => socket.destroyed

function send({ method }: http.IncomingMessage, { tunnel, path, headers }: Outgoing): http.ClientRequest {
  // On a connection for it alone: nothing of another request can be taken for its answer.
  return http.request({ createConnection: () => tunnel, ...(method && { method }), path, headers })
}

function passOn(
  incoming: http.IncomingMessage,
  response: http.ServerResponse,
  target: PreviewTarget,
  fail: (error: Error) => void,
): void {
  const { statusCode = 502, statusMessage } = incoming
  incoming.on('error', () => response.destroy())
  try {
    response.writeHead(statusCode, statusMessage, headersOutside(incoming, target)).flushHeaders()
    incoming.pipe(response)
  } catch (error) {
    fail(error as Error) // Node reads some heads that it would not write.
  }
}

function acceptance(incoming: http.IncomingMessage, target: PreviewTarget): string {
  const headers = [...headersOutside(incoming, target), 'connection', 'Upgrade']
  if (incoming.headers.upgrade !== undefined) headers.push('upgrade', incoming.headers.upgrade)
  let text = 'HTTP/1.1 101 Switching Protocols\r\n'
  for (let index = 0; index < headers.length; index += 2)
    text += `${headers[index]}: ${headers[index + 1]}\r\n`
  return `${text}\r\n`
}

function connect(from: Socket, to: Socket): void {
  from.pipe(to)
  from.on('error', () => to.destroy()).on('close', () => to.destroySoon())
}

/** An answer may come before the end of an upload; whoever sends on would hold the connection. */
function hangUp(request: http.IncomingMessage): void {
  const { socket } = request
  if (!request.complete) setTimeout(() => request.complete || socket.destroy(), LINGER_MS).unref()
}

const brokenOff = ({ message }: Error) =>
  new PreviewRefusal(
    502,
    'port_failed',
    'The program inside gave no proper answer',
    `The connection to it failed: ${message.slice(0, 200)}`,
  )
