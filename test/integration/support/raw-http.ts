import { Agent, type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http'
import { text } from 'node:stream/consumers'

export interface RawRequest {
  method?: string
  /** Sent exactly as it is: `fetch` would tidy up `..` and the like. */
  path: string
  headers?: Record<string, string>
  /** Bytes as they are; of a list, each part as a chunk of its own and no content-length. */
  body?: string | Uint8Array | Iterable<Uint8Array>
  /** Sent as JSON. */
  json?: unknown
}

export interface RawReply {
  status: number
  headers: IncomingHttpHeaders
  text: string
}

/** One request on a connection of its own, answered also where the server replies before it has read the body. */
export async function rawRequest(
  baseUrl: string,
  { method = 'GET', path, headers = {}, body, json }: RawRequest,
): Promise<RawReply> {
  const { hostname, port } = new URL(baseUrl)
  const agent = new Agent()
  const outgoing = request({ hostname, port, path, method, agent, headers: { ...typeOf(json), ...headers } })
  const { promise: reply, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  let hasReply = false
  outgoing.once('response', (incoming) => {
    hasReply = true
    resolve(incoming)
  })
  // A server that refuses a body does not read it to its end: writing on then breaks the connection.
  outgoing.on('error', (error) => hasReply || reject(error))
  const sent = send(outgoing, json === undefined ? body : JSON.stringify(json), () => hasReply)
  try {
    const incoming = await reply
    const content = await text(incoming)
    return { status: incoming.statusCode ?? 0, headers: incoming.headers, text: content }
  } finally {
    outgoing.destroy()
    agent.destroy()
    await sent
  }
}

const typeOf = (json: unknown) => (json === undefined ? {} : { 'content-type': 'application/json' })

async function send(
  outgoing: ReturnType<typeof request>,
  body: RawRequest['body'],
  isAnswered: () => boolean,
): Promise<void> {
  if (body === undefined || typeof body === 'string' || body instanceof Uint8Array) {
    outgoing.end(body)
    return
  }
  for (const chunk of body) {
    if (isAnswered() || outgoing.destroyed) return
    await new Promise<void>((resolve) => outgoing.write(chunk, () => resolve()))
  }
  outgoing.end()
}
