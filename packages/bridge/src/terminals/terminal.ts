import {
  AshError,
  MAX_TERMINAL_BYTES,
  type TerminalExit,
  type TerminalRead,
  type TerminalSize,
} from '@ash-ai/shared'
import { ProcessTree } from '../execute/process-tree.ts'
import type { Pty } from './pty.ts'

/** With more than this unread, the program has to wait. */
const HIGH_WATER_BYTES = 2 * MAX_TERMINAL_BYTES
/** An editor may save what it has before it is killed. */
const HANG_UP_MS = 250
/** After everything was killed, whatever got away may still hold the terminal open. */
const LAST_OUTPUT_MS = 500

/** One open terminal, read at the pace of whoever asks for its output. */
export class Terminal {
  /** Resolves when the program and all it started are gone. */
  readonly over: Promise<TerminalExit>
  readonly #pty: Pty
  readonly #tree: ProcessTree
  #chunks: Buffer[] = []
  #bytes = 0
  /** Its process number may be somebody else's by now. */
  #hasExited = false
  #hasEnded = false
  #wake: (() => void) | undefined
  #isRead = false

  constructor(pty: Pty, mark: string) {
    this.#pty = pty
    this.#tree = new ProcessTree(pty.pid, mark)
    this.#listen()
    this.over = this.#end()
  }

  /** What has come since, once there is something; at the end, how it ended. */
  async read(): Promise<TerminalRead> {
    if (this.#isRead) throw new AshError('agent_failed', 'the terminal is being read already')
    this.#isRead = true
    try {
      while (this.#bytes === 0 && !this.#hasEnded)
        await new Promise<void>((resolve) => (this.#wake = resolve))
      return this.#bytes === 0 ? { exit: await this.over } : { data: this.#take().toString('base64') }
    } finally {
      this.#isRead = false
    }
  }

  /** Resolves when the terminal has taken it. */
  write(data: Buffer): Promise<void> {
    const { stream } = this.#pty
    if (stream.destroyed) return Promise.resolve()
    return new Promise((resolve) => {
      stream.write(data, () => resolve()) // Also called where the program has ended meanwhile.
    })
  }

  resize(size: TerminalSize): void {
    if (!this.#pty.stream.destroyed) this.#pty.resize(size)
  }

  /** Hangs up, then kills what stays. */
  async close(): Promise<void> {
    if (!this.#hasExited) hangUp(this.#pty.pid)
    await Promise.race([this.#pty.exited, new Promise((resolve) => setTimeout(resolve, HANG_UP_MS))])
    await this.#tree.kill()
    await this.over
  }

  #listen(): void {
    const { stream } = this.#pty
    stream.on('data', (chunk: Buffer) => {
      this.#chunks.push(chunk)
      this.#bytes += chunk.length
      if (this.#bytes >= HIGH_WATER_BYTES) stream.pause()
      this.#wake?.()
    })
    // An input/output error is how a terminal says that nobody has it open any more.
    stream
      .on('error', () => {})
      .on('close', () => {
        this.#hasEnded = true
        this.#wake?.()
      })
  }

  #take(): Buffer {
    const all = this.#chunks.length === 1 ? (this.#chunks[0] ?? Buffer.alloc(0)) : Buffer.concat(this.#chunks)
    const rest = all.subarray(MAX_TERMINAL_BYTES)
    this.#chunks = rest.length > 0 ? [rest] : []
    this.#bytes = rest.length
    if (this.#bytes < HIGH_WATER_BYTES) this.#pty.stream.resume()
    return all.subarray(0, MAX_TERMINAL_BYTES)
  }

  async #end(): Promise<TerminalExit> {
    const exit = await this.#pty.exited
    this.#hasExited = true
    await this.#tree.kill()
    this.#closeWhenRead()
    return exit
  }

  /** What was written last is still to be read, however long its reader takes. */
  #closeWhenRead(): void {
    const { stream } = this.#pty
    const timer = setInterval(() => {
      if (stream.isPaused()) return
      clearInterval(timer)
      stream.destroy()
    }, LAST_OUTPUT_MS)
    stream.once('close', () => clearInterval(timer))
  }
}

function hangUp(pid: number): void {
  try {
    process.kill(pid, 'SIGHUP')
  } catch {
    // It has just ended.
  }
}
