import {
  MAX_TERMINAL_BYTES,
  TERMINAL_CLOSE,
  TerminalControl,
  type TerminalExit,
  type TerminalSize,
} from '@ash-ai/shared'
import { AshConnectionError } from './errors.ts'

/** Why a connection to a terminal is over. Only after `exited` is the program; the others can be come back to. */
export type TerminalEnd =
  | ({ reason: 'exited' } & TerminalExit)
  | { reason: 'closed' | 'sessionPaused' | 'sandboxGone' | 'serverStopping' | 'tooSlow' | 'lost' }

type Loss = Exclude<TerminalEnd['reason'], 'exited' | 'closed'>
const REASONS: ReadonlyMap<number, Loss> = new Map<number, Loss>([
  [TERMINAL_CLOSE.serverStopping, 'serverStopping'],
  [TERMINAL_CLOSE.sessionPaused, 'sessionPaused'],
  [TERMINAL_CLOSE.sandboxGone, 'sandboxGone'],
  [TERMINAL_CLOSE.tooSlow, 'tooSlow'],
])

/** More than a server replays. */
const MAX_EARLY_PIECES = 100

/** A terminal somebody looks at. What comes before there is a listener is kept for it, if it is not too much. */
export class TerminalConnection {
  readonly id: string
  /** Resolves when nothing more comes. */
  readonly ended: Promise<TerminalEnd>
  readonly #socket: WebSocket
  #early: Uint8Array[] = []
  #take: ((data: Uint8Array) => void) | undefined
  #onResize: ((size: TerminalSize) => void) | undefined
  #exit: TerminalExit | undefined
  #isClosed = false

  private constructor(socket: WebSocket, id: string) {
    this.#socket = socket
    this.id = id
    const { promise, resolve } = Promise.withResolvers<TerminalEnd>()
    this.ended = promise
    socket.onmessage = ({ data }: { data: unknown }) => this.#receive(data)
    socket.onclose = ({ code }: { code: number }) => resolve(this.#endOf(code))
  }

  /** Resolves when the server has said which terminal it is. */
  static open(url: string, signal?: AbortSignal): Promise<TerminalConnection> {
    const socket = new WebSocket(url)
    socket.binaryType = 'arraybuffer'
    const { promise, resolve, reject } = Promise.withResolvers<TerminalConnection>()
    const fail = () => {
      socket.close()
      reject(signal?.reason ?? new AshConnectionError('lost', 'The server did not open the terminal'))
    }
    signal?.addEventListener('abort', fail, { once: true })
    socket.onclose = fail
    socket.onmessage = ({ data }: { data: unknown }) => {
      const control = typeof data === 'string' ? parseControl(data) : undefined
      if (control?.type === 'ready') resolve(new TerminalConnection(socket, control.id))
      else fail()
    }
    return promise.finally(() => signal?.removeEventListener('abort', fail))
  }

  /** Called with all output, what came before included. One listener at a time. */
  onData(take: (data: Uint8Array) => void): void {
    this.#take = take
    for (const data of this.#early.splice(0)) take(data)
  }

  /** Called when somebody, perhaps this connection, has changed the size. */
  onResize(take: (size: TerminalSize) => void): void {
    this.#onResize = take
  }

  write(data: string | Uint8Array): void {
    const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data
    for (let at = 0; at < bytes.length; at += MAX_TERMINAL_BYTES)
      this.#send(bytes.slice(at, at + MAX_TERMINAL_BYTES))
  }

  resize({ cols, rows }: TerminalSize): void {
    this.#send(JSON.stringify({ type: 'resize', cols, rows }))
  }

  /** Leaves; the terminal goes on for five minutes, and `open` with its id comes back to it. */
  close(): void {
    this.#isClosed = true
    this.#socket.close()
  }

  #send(data: string | Uint8Array<ArrayBuffer>): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(data)
  }

  #receive(data: unknown): void {
    if (data instanceof ArrayBuffer) {
      const bytes = new Uint8Array(data)
      if (this.#take) this.#take(bytes)
      else this.#early = [...this.#early, bytes].slice(-MAX_EARLY_PIECES)
      return
    }
    const control = parseControl(String(data))
    if (control?.type === 'exit') this.#exit = { code: control.code, signal: control.signal }
    else if (control?.type === 'resize') this.#onResize?.({ cols: control.cols, rows: control.rows })
  }

  #endOf(code: number): TerminalEnd {
    if (this.#exit) return { reason: 'exited', ...this.#exit }
    return { reason: this.#isClosed ? 'closed' : (REASONS.get(code) ?? 'lost') }
  }
}

/** Newer servers may say more. */
function parseControl(text: string): TerminalControl | undefined {
  try {
    return TerminalControl.safeParse(JSON.parse(text)).data
  } catch {
    return undefined
  }
}
