import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http'
import type { Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import type { PreviewLink } from '@ash-ai/sdk'

/** A browser's view of one preview: the origin of its link, reached without asking the DNS. */
export class PreviewClient {
  readonly url: URL
  /** Sent with every request. */
  headers: Record<string, string> = {}

  constructor({ url }: PreviewLink) {
    this.url = new URL(url)
  }

  get token(): string {
    return this.url.searchParams.get('ash_token') ?? ''
  }

  /** Opens the link and keeps its cookie. */
  async enter(): Promise<{ status: number; headers: IncomingHttpHeaders }> {
    const reply = await this.get(`/?ash_token=${this.token}`)
    const cookie = reply.headers['set-cookie']?.[0]?.split(';', 1)[0]
    if (cookie !== undefined) this.headers = { ...this.headers, cookie }
    return reply
  }

  async get(path: string, headers: Record<string, string> = {}) {
    const incoming = await this.open(path, { headers })
    return { status: incoming.statusCode ?? 0, headers: incoming.headers, text: await text(incoming) }
  }

  /** A reply whose body is still to come. */
  async open(
    path: string,
    { method = 'GET', headers = {}, body }: OpenOptions = {},
  ): Promise<IncomingMessage> {
    const outgoing = this.#request(path, method, headers)
    const reply = once(outgoing, 'response') as Promise<[IncomingMessage]>
    for (const part of body ?? []) if (!outgoing.write(part)) await once(outgoing, 'drain')
    outgoing.end()
    return (await reply)[0]
  }

  /** Asks and does not wait for an answer. */
  async dial(path: string): Promise<Socket> {
    const outgoing = this.#request(path, 'GET', {}).on('error', () => {})
    const [socket] = (await once(outgoing, 'socket')) as [Socket]
    outgoing.end()
    return socket
  }

  /** Opens a WebSocket; throws the status of a refusal. */
  async socket(path: string, headers: Record<string, string> = {}): Promise<WebSocketEnd> {
    const outgoing = this.#request(path, 'GET', {
      connection: 'Upgrade',
      upgrade: 'websocket',
      'sec-websocket-version': '13',
      'sec-websocket-key': randomBytes(16).toString('base64'),
      ...headers,
    })
    outgoing.end()
    return new Promise((resolve, reject) => {
      outgoing.on('error', reject)
      outgoing.on('response', (incoming) => {
        incoming.resume()
        reject(new Error(`refused with ${incoming.statusCode}`))
      })
      outgoing.on('upgrade', (_incoming, socket: Socket) => resolve(new WebSocketEnd(socket)))
    })
  }

  #request(path: string, method: string, headers: Record<string, string>) {
    const { host, port } = this.url
    return request({
      hostname: '127.0.0.1',
      port,
      path,
      method,
      agent: false,
      headers: { host, ...this.headers, ...headers },
    })
  }
}

interface OpenOptions {
  method?: string
  headers?: Record<string, string>
  body?: Iterable<Uint8Array>
}

/** As much of a WebSocket as an echo needs: text of at most 125 bytes. */
export class WebSocketEnd {
  readonly socket: Socket
  readonly closed: Promise<void>

  constructor(socket: Socket) {
    this.socket = socket
    this.closed = new Promise((resolve) => socket.once('close', () => resolve()))
    socket.on('error', () => {})
  }

  async echo(message: string): Promise<string> {
    const mask = randomBytes(4)
    const data = Buffer.from(message).map((byte, at) => byte ^ (mask[at % 4] ?? 0))
    this.socket.write(Buffer.concat([Buffer.from([0x81, 0x80 | data.length]), mask, data]))
    let received = Buffer.alloc(0)
    while (received.length < 2 || received.length < 2 + (received[1] ?? 0)) {
      const [chunk] = (await once(this.socket, 'data')) as [Buffer]
      received = Buffer.concat([received, chunk])
    }
    return received.subarray(2).toString()
  }
}
