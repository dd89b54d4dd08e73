import { Buffer } from 'node:buffer'
import { writeSync } from 'node:fs'
import { Socket } from 'node:net'
import process from 'node:process'
import { INTERPRETER_FD, MAX_INTERPRETER_LINE_BYTES } from '@ash-ai/shared'

const { from: toBuffer, concat } = Buffer
const { wait } = Atomics
const { once, removeListener } = process
const NEVER = new Int32Array(new SharedArrayBuffer(4))
const RETRY_MS = 1

/**
 * An interpreter's descriptor 3. Node has closed it for programs that user code starts; it cannot move it elsewhere.
 * Writes are synchronous: what was sent before the process ends has been sent.
 */
export class KernelChannel {
  #socket = new Socket({ fd: INTERPRETER_FD, readable: true, writable: false })
  #chunks: Buffer[] = []
  #bytes = 0

  constructor(onLine: (line: string) => void, onEnd: () => void) {
    this.#socket.on('data', (chunk: Buffer) => this.#take(chunk, onLine, onEnd))
    this.#socket.on('end', onEnd).on('error', onEnd)
  }

  /** `json`: one value without line breaks. */
  send(json: string): void {
    let bytes = toBuffer(`${json}\n`)
    while (bytes.length > 0) {
      try {
        bytes = bytes.subarray(writeSync(INTERPRETER_FD, bytes))
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error
        wait(NEVER, 0, 0, RETRY_MS) // The host has not read yet.
      }
    }
  }

  /** From now on it does not keep the process from ending. */
  release(): void {
    this.#socket.pause().unref()
  }

  /** Until the returned function is called, `onIdle` hears of a process that has nothing left to wait for. */
  watchIdle(onIdle: () => void): () => void {
    this.#socket.unref()
    once.call(process, 'beforeExit', onIdle)
    return () => {
      removeListener.call(process, 'beforeExit', onIdle)
      this.#socket.ref()
    }
  }

  #take(chunk: Buffer, onLine: (line: string) => void, onEnd: () => void): void {
    let rest = chunk
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10)) {
      const line = concat([...this.#chunks, rest.subarray(0, end)]).toString('utf8')
      this.#chunks = []
      this.#bytes = 0
      rest = rest.subarray(end + 1)
      onLine(line)
    }
    this.#chunks.push(rest)
    this.#bytes += rest.length
    if (this.#bytes > MAX_INTERPRETER_LINE_BYTES) onEnd()
  }
}
