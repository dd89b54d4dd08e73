import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

export interface Target {
  url: string
  headers: Record<string, string>
}

const LAST_CHUNK = '\r\n0\r\n\r\n'

/**
 * A kept HTTP connection, as raw as can be: a client that costs as much as the server would be what is measured.
 * It knows only replies in chunks, which is what streams are.
 */
export class StreamConnection {
  readonly #socket: Socket
  readonly #target: Target

  private constructor(socket: Socket, target: Target) {
    this.#socket = socket
    this.#target = target
  }

  static async open(target: Target): Promise<StreamConnection> {
    const { hostname, port } = new URL(target.url)
    const socket = connect(Number(port), hostname).setNoDelay()
    await once(socket, 'connect')
    return new StreamConnection(socket, target)
  }

  /** Runs a turn to the last byte of its stream. Throws where it did not end with `done`. */
  async runTurn(content: string): Promise<{ ms: number; events: number }> {
    const body = JSON.stringify({ content })
    const chunks: string[] = []
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const take = (chunk: string) => {
      chunks.push(chunk)
      if (!chunks[0]?.startsWith('HTTP/1.1 200')) reject(new Error(`${this.#target.url} answered ${chunk}`))
      const end = chunk.length >= LAST_CHUNK.length ? chunk : chunks.slice(-LAST_CHUNK.length).join('')
      if (end.endsWith(LAST_CHUNK)) resolve()
    }
    const fail = () => reject(new Error(`The connection to ${this.#target.url} ended`))
    this.#socket.setEncoding('latin1').on('data', take).on('close', fail)
    const started = performance.now()
    this.#send('POST', { 'content-type': 'application/json', 'content-length': String(body.length) }, body)
    await promise
    const ms = performance.now() - started
    this.#socket.off('data', take).off('close', fail)
    const reply = chunks.join('')
    if (!reply.includes('event: done')) throw new Error(`${this.#target.url}: ${reply.slice(-500)}`)
    return { ms, events: reply.split('event: ').length - 1 }
  }

  /** Opens a stream and leaves it open; resolves when the server has answered. */
  async follow(): Promise<void> {
    this.#send('GET', {})
    const [head] = (await once(this.#socket, 'data')) as [Buffer]
    if (!head.toString('latin1').startsWith('HTTP/1.1 200')) throw new Error(head.toString('latin1'))
    this.#socket.resume()
  }

  #send(method: string, extra: Record<string, string>, body = ''): void {
    const { host, pathname, search } = new URL(this.#target.url)
    const headers = Object.entries({ host, ...this.#target.headers, ...extra })
    const lines = [
      `${method} ${pathname}${search} HTTP/1.1`,
      ...headers.map(([name, value]) => `${name}: ${value}`),
    ]
    this.#socket.write(`${lines.join('\r\n')}\r\n\r\n${body}`)
  }
}
