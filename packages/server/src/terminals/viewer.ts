import {
  MAX_TERMINAL_BYTES,
  STUCK_CLIENT_TIMEOUT_MS,
  TERMINAL_CLOSE,
  type TerminalControl,
  type TerminalSize,
  ViewerControl,
} from '@ash-ai/shared'
import type { WebSocket } from 'ws'

/** With more on the way to it, the terminal waits for this viewer; until half of that is left. */
const HIGH_WATER_BYTES = 256 * 1024
/** A viewer that takes nothing for so long is not waited for, so that the others can go on. */
const STUCK_MS = 1_000
/** What it may then fall behind. */
const MAX_BEHIND_BYTES = 4 * 1024 * 1024
const MAX_PENDING_INPUT_BYTES = 256 * 1024
const MAX_CONTROL_CHARS = 1_000
const TICK_MS = 1_000
const PING_TICKS = 15
/** For what is still on its way. */
const CLOSE_TIMEOUT_MS = 5_000

/** What a viewer does to the terminal it sees. */
interface ViewerActions {
  /** Resolves when the terminal has taken it. */
  input(data: Buffer): Promise<void>
  resize(size: TerminalSize): void
}

/** One connection to a terminal. */
export class Viewer {
  /** Resolves when the connection is over. */
  readonly gone: Promise<void>
  readonly #socket: WebSocket
  readonly #tick: NodeJS.Timeout
  #pendingBytes = 0
  #pendingInput = 0
  #lastTakenMs = performance.now()
  #lastHeardMs = performance.now()
  #ticks = 0
  #isStuck = false
  #isClosing = false
  #onRoom: (() => void) | undefined

  constructor(socket: WebSocket) {
    this.#socket = socket
    this.#tick = setInterval(() => this.#check(), TICK_MS).unref()
    socket.on('error', () => {}) // Followed by the end of the connection.
    socket.on('pong', () => this.#heard())
    this.gone = new Promise((resolve) => {
      socket.once('close', () => {
        clearInterval(this.#tick)
        this.#isClosing = true
        this.#onRoom?.()
        resolve()
      })
    })
  }

  obey(actions: ViewerActions): void {
    this.#socket.on('message', (data: Buffer, isBinary: boolean) => {
      this.#heard()
      const size = isBinary ? undefined : parseControl(data)
      if (isBinary) this.#takeInput(data, actions)
      else if (size) actions.resize(size)
      else this.close(TERMINAL_CLOSE.invalid, 'A text frame must be {"type":"resize","cols":…,"rows":…}')
    })
    this.#socket.resume()
  }

  tell(control: TerminalControl): void {
    this.#sendPiece(JSON.stringify(control))
  }

  /** In pieces: a viewer counts as stuck if it takes none in time, however long all of them take. */
  send(data: Buffer): void {
    for (let at = 0; at < data.length; at += MAX_TERMINAL_BYTES)
      this.#sendPiece(data.subarray(at, at + MAX_TERMINAL_BYTES))
  }

  /** A promise while the terminal is to wait for this viewer. */
  hasRoom(): Promise<void> | undefined {
    if (this.#pendingBytes <= HIGH_WATER_BYTES || this.#isStuck || this.#isClosing) return undefined
    return new Promise((resolve) => {
      this.#onRoom = resolve
    })
  }

  close(code: number, reason: string): void {
    if (this.#isClosing) return
    this.#isClosing = true
    this.#socket.close(code, reason)
    const timer = setTimeout(() => this.#socket.terminate(), CLOSE_TIMEOUT_MS)
    this.#socket.once('close', () => clearTimeout(timer))
    this.#onRoom?.()
  }

  #sendPiece(piece: Buffer | string): void {
    if (this.#isClosing) return
    if (this.#pendingBytes === 0) this.#lastTakenMs = performance.now()
    if (this.#pendingBytes + piece.length > MAX_BEHIND_BYTES) {
      this.#dropSlow()
      return
    }
    this.#pendingBytes += piece.length
    this.#socket.send(piece, () => this.#taken(piece.length)) // Text as text, bytes as bytes.
  }

  #taken(bytes: number): void {
    this.#pendingBytes -= bytes
    this.#lastTakenMs = performance.now()
    this.#isStuck = false
    if (this.#pendingBytes <= HIGH_WATER_BYTES / 2) this.#onRoom?.()
  }

  /** The connection is read no further while the program does not take what came. */
  #takeInput(data: Buffer, { input }: ViewerActions): void {
    this.#pendingInput += data.length
    if (this.#pendingInput > MAX_PENDING_INPUT_BYTES) this.#socket.pause()
    void input(data).then(() => {
      this.#pendingInput -= data.length
      if (this.#pendingInput <= MAX_PENDING_INPUT_BYTES / 2 && this.#socket.isPaused) {
        this.#heard()
        this.#socket.resume()
      }
    })
  }

  #heard(): void {
    this.#lastHeardMs = performance.now()
  }

  #check(): void {
    const now = performance.now()
    const takenAgoMs = this.#pendingBytes === 0 ? 0 : now - this.#lastTakenMs
    if (takenAgoMs > STUCK_CLIENT_TIMEOUT_MS) this.#dropSlow()
    else if (takenAgoMs > STUCK_MS) {
      this.#isStuck = true
      this.#onRoom?.()
    }
    // Also one whose input nobody takes: it is not read, so that it would not be seen to leave.
    if (now - this.#lastHeardMs > PING_TICKS * TICK_MS + STUCK_CLIENT_TIMEOUT_MS) this.#socket.terminate()
    else if (++this.#ticks % PING_TICKS === 0) this.#socket.ping()
  }

  #dropSlow(): void {
    this.close(TERMINAL_CLOSE.tooSlow, 'The connection is too slow. Connect again to see where it is.')
  }
}

function parseControl(data: Buffer): TerminalSize | undefined {
  if (data.length > MAX_CONTROL_CHARS) return undefined
  try {
    return ViewerControl.safeParse(JSON.parse(data.toString())).data
  } catch {
    return undefined // Not JSON.
  }
}
