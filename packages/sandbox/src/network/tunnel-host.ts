import { randomBytes } from 'node:crypto'
import { createServer, type Server, type Socket } from 'node:net'
import { AshError, TUNNEL_TOKEN_BYTES } from '@ash-ai/shared'
import type { Owner } from '../provider.ts'
import { listenOnPath } from './listen-on-path.ts'

/** Open, and about to be. */
const MAX_TUNNELS = 256
/** Asked of the bridge at once: it takes few commands at a time, and others have some to send. */
const MAX_ASKED = 16
/** Connections that have not said yet which tunnel they are. Anything inside may make such. */
const MAX_STRANGERS = 32
const ANSWER_TIMEOUT_MS = 10_000
const TOKEN_LINE_BYTES = 2 * TUNNEL_TOKEN_BYTES + 1

/** Has the bridge connect a port with the tunnel of this token; false where nothing listens there. */
export type AskForTunnel = (port: number, token: string) => Promise<boolean>

interface Expected {
  take: (socket: Socket | undefined) => void
  fail: (error: unknown) => void
}

/**
 * Where connections to the ports of one sandbox come out. The host cannot connect into it; so it asks the bridge, which
 * connects both ways and names the token of that one tunnel. A connection that names none is of no use to anybody.
 */
export class TunnelHost {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  readonly #expected = new Map<string, Expected>()
  readonly #queue: (() => void)[] = []
  #removeSocket: () => Promise<void> = async () => {}
  #strangers = 0
  #tunnels = 0
  #asked = 0

  private constructor() {
    this.#server = createServer({ allowHalfOpen: true }, (socket) => this.#greet(socket))
  }

  static async listen(socketPath: string, owner: Owner | undefined): Promise<TunnelHost> {
    const host = new TunnelHost()
    host.#removeSocket = await listenOnPath(host.#server, socketPath, owner)
    return host
  }

  /** A connection to a port inside; undefined where nothing listens there. */
  async open(port: number, ask: AskForTunnel): Promise<Socket | undefined> {
    // A bridge that does not answer lets nobody out of the queue.
    if (this.#tunnels >= MAX_TUNNELS || this.#queue.length >= MAX_TUNNELS)
      throw new AshError('too_many_readers', `A session has at most ${MAX_TUNNELS} connections to its ports`)
    this.#tunnels++
    const token = randomBytes(TUNNEL_TOKEN_BYTES).toString('hex')
    let socket: Socket | undefined
    try {
      socket = await this.#request(port, token, ask)
      return socket
    } finally {
      this.#expected.delete(token)
      if (!socket || socket.closed) this.#tunnels--
      else socket.once('close', () => this.#tunnels--)
    }
  }

  async close(): Promise<void> {
    this.#server.close()
    for (const { fail } of this.#expected.values()) fail(sandboxGone())
    for (const socket of this.#sockets) socket.destroy()
    await this.#removeSocket()
  }

  #request(port: number, token: string, ask: AskForTunnel): Promise<Socket | undefined> {
    return new Promise((take, fail) => {
      const timer = setTimeout(() => fail(noAnswer(port)), ANSWER_TIMEOUT_MS)
      const settle =
        <Value>(end: (value: Value) => void) =>
        (value: Value) => {
          clearTimeout(timer)
          end(value)
        }
      const expected: Expected = { take: settle(take), fail: settle(fail) }
      this.#expected.set(token, expected)
      this.#inTurn(async () => {
        // It may have waited for too long already.
        if (!this.#expected.has(token)) return
        if (!(await ask(port, token))) expected.take(undefined)
      }).catch(expected.fail)
    })
  }

  async #inTurn(work: () => Promise<void>): Promise<void> {
    // Whoever waits gets the place of the one before it.
    if (this.#asked >= MAX_ASKED) await new Promise<void>((resolve) => this.#queue.push(resolve))
    else this.#asked++
    try {
      await work()
    } finally {
      const next = this.#queue.shift()
      if (next) next()
      else this.#asked--
    }
  }

  #greet(socket: Socket): void {
    if (this.#strangers >= MAX_STRANGERS) return void socket.destroy()
    this.#strangers++
    this.#sockets.add(socket)
    const timer = setTimeout(() => socket.destroy(), ANSWER_TIMEOUT_MS)
    const known = () => {
      clearTimeout(timer)
      socket.off('readable', read).off('close', known)
      this.#strangers--
    }
    const read = () => {
      const line: Buffer | null = socket.read(TOKEN_LINE_BYTES)
      if (line === null) return
      known()
      this.#receive(socket, line.toString('latin1'))
    }
    socket.on('error', () => {}).on('close', () => this.#sockets.delete(socket))
    socket.on('readable', read).on('close', known)
  }

  #receive(socket: Socket, line: string): void {
    const token = line.slice(0, -1)
    const expected = line.endsWith('\n') ? this.#expected.get(token) : undefined
    if (!expected) return void socket.destroy()
    // It is good for one tunnel.
    this.#expected.delete(token)
    expected.take(socket)
  }
}

const noAnswer = (port: number) =>
  new AshError(
    'bridge_unresponsive',
    `The sandbox did not connect to port ${port} within ${ANSWER_TIMEOUT_MS / 1000} s`,
  )
const sandboxGone = () => new AshError('sandbox_died', 'The sandbox was stopped')
