import type { Socket } from 'node:net'
import {
  type BridgeCommand,
  type BridgeEvent,
  decodeCommand,
  encodeLine,
  encodeMessage,
  LineSplitter,
  type MessageEvent,
} from '@ash-ai/shared'

/** The bridge's end of the connection to its host. Writing returns a promise while the socket is full, else nothing. */
export class BridgeConnection {
  readonly #socket: Socket
  #drained: Promise<void> | undefined

  constructor(socket: Socket) {
    this.#socket = socket
  }

  send(event: Exclude<BridgeEvent, MessageEvent>): Promise<void> | undefined {
    return this.#write(encodeLine(event))
  }

  /** An SDK message, exactly as the SDK produced it. */
  sendMessage(commandId: string, message: unknown): Promise<void> | undefined {
    return this.#write(encodeMessage(commandId, message))
  }

  /** Hands each command to `serve`; resolves when the host has gone away. */
  listen(serve: (command: BridgeCommand) => Promise<void>): Promise<void> {
    const lines = new LineSplitter()
    this.#socket.on('data', (chunk: Buffer) => {
      for (const line of lines.push(chunk)) void serve(decodeCommand(line))
    })
    return new Promise((resolve) => {
      this.#socket
        .on('end', resolve)
        .on('close', () => resolve())
        .on('error', () => resolve())
    })
  }

  /** Resolves when everything written has left. */
  end(): Promise<void> {
    return new Promise((resolve) => this.#socket.end(resolve))
  }

  #write(line: string): Promise<void> | undefined {
    if (this.#drained !== undefined) return this.#drained.then(() => this.#write(line))
    this.#collect()
    if (this.#socket.write(line)) return undefined
    this.#drained = drained(this.#socket).finally(() => {
      this.#drained = undefined
    })
    return this.#drained
  }

  /** Lines written one after another, without waiting for anything in between, leave as one. */
  #collect(): void {
    if (this.#socket.writableCorked > 0) return
    this.#socket.cork()
    process.nextTick(() => this.#socket.uncork())
  }
}

/** Resolves when the socket takes more, or never will. */
function drained(socket: Socket): Promise<void> {
  if (socket.destroyed) return Promise.resolve()
  return new Promise((resolve) => {
    const done = () => {
      socket.off('drain', done).off('close', done)
      resolve()
    }
    socket.on('drain', done).on('close', done)
  })
}
