import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

interface Reply {
  /** From the first byte sent to the last byte of the reply. */
  ms: number
  body: unknown
}

/**
 * A kept HTTP connection for one request at a time, as raw as can be: a client that costs as much as the server would
 * be what is measured. It knows only replies that say their length, which is what JSON replies are.
 */
export class JsonConnection {
  readonly #socket: Socket
  readonly #head: string

  private constructor(socket: Socket, head: string) {
    this.#socket = socket
    this.#head = head
  }

  static async open(url: string, apiKey?: string): Promise<JsonConnection> {
    const { hostname, port, host } = new URL(url)
    const socket = connect(Number(port), hostname).setNoDelay().setEncoding('latin1')
    await once(socket, 'connect')
    const key = apiKey === undefined ? '' : `authorization: Bearer ${apiKey}\r\n`
    return new JsonConnection(socket, `HTTP/1.1\r\nhost: ${host}\r\n${key}`)
  }

  /** Throws where the reply is not a success. */
  async post(path: string, body?: object): Promise<Reply> {
    const { promise, resolve, reject } = Promise.withResolvers<string>()
    let reply = ''
    const take = (chunk: string) => {
      reply += chunk
      if (isWhole(reply)) resolve(reply)
    }
    const fail = () => reject(new Error(`The connection ended during POST ${path}`))
    this.#socket.on('data', take).once('close', fail)
    try {
      const started = performance.now()
      this.#send(path, body)
      const text = await promise
      const ms = performance.now() - started
      if (!/^HTTP\/1\.1 20\d /.test(text)) throw new Error(`POST ${path}: ${text}`)
      return { ms, body: JSON.parse(text.slice(text.indexOf(HEAD_END) + HEAD_END.length)) }
    } finally {
      this.#socket.off('data', take).off('close', fail)
    }
  }

  close(): void {
    this.#socket.destroy()
  }

  #send(path: string, body: object | undefined): void {
    const json = body === undefined ? '' : JSON.stringify(body)
    const type = body === undefined ? '' : 'content-type: application/json\r\n'
    const length = `content-length: ${Buffer.byteLength(json)}\r\n`
    this.#socket.write(`POST ${path} ${this.#head}${type}${length}\r\n${json}`)
  }
}

const HEAD_END = '\r\n\r\n'

function isWhole(reply: string): boolean {
  const head = reply.indexOf(HEAD_END)
  if (head < 0) return false
  const [, length] = /\r\ncontent-length: (\d+)/i.exec(reply.slice(0, head)) ?? []
  if (length === undefined) throw new Error(`a reply without a length: ${reply}`)
  return reply.length >= head + HEAD_END.length + Number(length)
}
