import {
  AshError,
  isAshError,
  MAX_TERMINAL_BYTES,
  ProtocolError,
  type TerminalExit,
  type TerminalSize,
  type TerminalStart,
} from '@ash-ai/shared'
import type { BridgeClient } from '../bridge-client.ts'
import type { Enclosure } from '../limits/enclosure.ts'
import type { Sandbox } from '../manager.ts'

const OPEN_TIMEOUT_MS = 30_000
const CLOSE_TIMEOUT_MS = 5_000

type TerminalOutput = { data: Buffer } | { exit: TerminalExit }

/** A program with a terminal in a sandbox. It waits while nobody reads, so that its output fills no memory. */
export class SandboxTerminal {
  readonly #bridge: BridgeClient
  readonly #id: string
  readonly #enclosure: Enclosure | undefined
  #closing: Promise<void> | undefined

  private constructor(bridge: BridgeClient, id: string, enclosure: Enclosure | undefined) {
    this.#bridge = bridge
    this.#id = id
    this.#enclosure = enclosure
  }

  /** Without a command it is an interactive shell. */
  static async open(
    { bridge, enclose }: Pick<Sandbox, 'bridge' | 'enclose'>,
    spec: TerminalSize & { command?: string },
  ): Promise<SandboxTerminal> {
    const data = await inTime(OPEN_TIMEOUT_MS, bridge.call({ cmd: 'terminal', ...spec }))
    const { terminal, pid } = believe(bridge, () => decodeStart(data))
    const enclosure = await enclose(pid).catch(async (error: unknown) => {
      if (isAshError(error, 'interpreter_gone')) return undefined // It has ended already.
      await bridge.call({ cmd: 'terminal_close', terminal }).catch(() => {})
      throw error
    })
    return new SandboxTerminal(bridge, terminal, enclosure)
  }

  /** Output, once there is some, and after the last of it how the program ended. One call at a time. */
  async read(): Promise<TerminalOutput> {
    const data = await this.#bridge.call({ cmd: 'terminal_read', terminal: this.#id })
    return believe(this.#bridge, () => decodeOutput(data))
  }

  /** Resolves when the terminal has taken it, which may be when the program reads. */
  async write(data: Buffer): Promise<void> {
    for (let at = 0; at < data.length; at += MAX_TERMINAL_BYTES) {
      const piece = data.toString('base64', at, Math.min(at + MAX_TERMINAL_BYTES, data.length))
      await this.#bridge.call({ cmd: 'terminal_input', terminal: this.#id, data: piece })
    }
  }

  async resize({ cols, rows }: TerminalSize): Promise<void> {
    await this.#bridge.call({ cmd: 'terminal_resize', terminal: this.#id, cols, rows })
  }

  /** Ends the program and everything it started. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    if (!this.#bridge.isClosed) {
      const closed = this.#bridge.call({ cmd: 'terminal_close', terminal: this.#id })
      await inTime(CLOSE_TIMEOUT_MS, closed).catch(() => {}) // A bridge that does not answer meets its own end.
    }
    // Where that fails, the end of the sandbox does the same.
    await this.#enclosure?.kill().catch(() => {})
    await this.#enclosure?.remove().catch(() => {})
  }
}

async function inTime(maxMs: number, answer: Promise<unknown>): Promise<unknown> {
  const { promise, reject } = Promise.withResolvers<never>()
  const error = new AshError('bridge_unresponsive', `The bridge did not answer within ${maxMs / 1000} s`)
  const timer = setTimeout(() => reject(error), maxMs)
  try {
    return await Promise.race([answer, promise])
  } finally {
    clearTimeout(timer)
  }
}

function decodeStart(data: unknown): TerminalStart {
  const { terminal, pid } = asRecord(data)
  if (typeof terminal !== 'string' || !/^[A-Za-z0-9_-]{1,64}$/.test(terminal))
    throw new ProtocolError('a terminal without an id')
  if (!Number.isInteger(pid) || (pid as number) < 2) throw new ProtocolError('a terminal without a process')
  return { terminal, pid: pid as number }
}

const MAX_ENCODED_CHARS = Math.ceil(MAX_TERMINAL_BYTES / 3) * 4

function decodeOutput(data: unknown): TerminalOutput {
  const { data: text, exit } = asRecord(data)
  if (typeof text === 'string' && text.length <= MAX_ENCODED_CHARS) {
    const bytes = Buffer.from(text, 'base64')
    if (bytes.length > 0) return { data: bytes }
  }
  const { code, signal } = asRecord(exit)
  if (isByte(code) && isByte(signal)) return { exit: { code, signal } }
  throw new ProtocolError('a terminal that says neither output nor end')
}

const MAX_BYTE = 255
const isByte = (value: unknown): value is number | null =>
  value === null || (Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MAX_BYTE)

const asRecord = (value: unknown) => (value ?? {}) as Record<string, unknown>

/** A bridge that answers with something else is as bad as one that breaks the protocol. */
function believe<Value>(bridge: BridgeClient, decode: () => Value): Value {
  try {
    return decode()
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error
    const reason = new AshError('bridge_protocol_error', `The sandbox broke the protocol: ${error.message}`)
    bridge.close(reason)
    throw reason
  }
}
