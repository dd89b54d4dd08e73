import { type IncomingMessage, type Server, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { AshError } from '@ash-ai/shared'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type WebSocket, WebSocketServer } from 'ws'

const MAX_FRAME_BYTES = 256 * 1024

interface Upgrade {
  socket: Duplex
  head: Buffer
}

/** WebSockets on ordinary routes: keys, checks and errors are those of every request until one is accepted. */
export class Upgrades {
  readonly #pending = new WeakMap<IncomingMessage, Upgrade>()
  // Compressing costs memory for each connection, and time for each key that is pressed.
  readonly #server = new WebSocketServer({
    noServer: true,
    maxPayload: MAX_FRAME_BYTES,
    perMessageDeflate: false,
  })

  /** `isExpected`: of which paths. For all others the wish is ignored, as some clients express it with every request. */
  constructor(app: FastifyInstance, isExpected: (path: string) => boolean) {
    const server: Server & { shouldUpgradeCallback?: (request: IncomingMessage) => boolean } = app.server
    server.shouldUpgradeCallback = ({ headers, url = '' }) =>
      headers.upgrade?.toLowerCase() === 'websocket' && isExpected(url.split('?', 1)[0] ?? '')
    server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      socket.on('error', () => socket.destroy())
      const response = new ServerResponse(request)
      if (socket instanceof Socket) response.assignSocket(socket)
      // A reply means that it was refused: Node looks after this connection no more.
      response.shouldKeepAlive = false
      response.on('finish', () => socket.end())
      this.#pending.set(request, { socket, head })
      app.routing(request, response)
    })
  }

  assertAsked({ raw }: FastifyRequest): void {
    if (!this.#pending.has(raw))
      throw new AshError('upgrade_required', 'This path speaks WebSocket: connect with ws:// or wss://')
  }

  /** It is paused: whatever comes waits until somebody listens. Undefined where the client has left meanwhile. */
  async accept({ raw }: FastifyRequest, reply: FastifyReply): Promise<WebSocket | undefined> {
    const upgrade = this.#pending.get(raw)
    if (!upgrade) throw new Error('nobody asked for a WebSocket')
    reply.hijack()
    if (upgrade.socket instanceof Socket) reply.raw.detachSocket(upgrade.socket)
    return new Promise((resolve) => {
      upgrade.socket.once('close', () => resolve(undefined))
      this.#server.handleUpgrade(raw, upgrade.socket, upgrade.head, (accepted) => {
        accepted.pause()
        resolve(accepted)
      })
      if (upgrade.socket.destroyed) resolve(undefined)
    })
  }
}
