import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { SandboxTerminal } from '@ash-ai/sandbox'
import {
  AshError,
  isAshError,
  TERMINAL_CLOSE,
  type Terminal,
  type TerminalExit,
  type TerminalSize,
} from '@ash-ai/shared'
import { Pace } from './pace.ts'
import { Scrollback } from './scrollback.ts'
import type { Viewer } from './viewer.ts'

const MAX_VIEWERS = 16
/** After the last viewer left, for one that lost its connection or changes its place. */
const UNWATCHED_MS = 5 * 60_000
/** So that a program sees both sizes: it is told that there is a new one, and asks which. */
const NUDGE_MS = 50
/** How long one that ended while nobody looked is kept for whoever comes to see it. */
const UNSEEN_MS = 60_000
const STOPPING = [TERMINAL_CLOSE.serverStopping, 'The server is shutting down'] as const
const GONE = [TERMINAL_CLOSE.sandboxGone, 'The sandbox of the session has ended'] as const

/** A terminal of a session, for all who look at it. */
export class OpenTerminal {
  readonly id = randomUUID()
  /** Resolves when its program has ended, or its sandbox has, and nobody is left to be told. */
  readonly over: Promise<void>
  readonly #terminal: SandboxTerminal
  readonly #command: string | undefined
  readonly #createdAt = new Date().toISOString()
  readonly #viewers = new Set<Viewer>()
  readonly #scrollback = new Scrollback()
  readonly #pace = new Pace()
  #size: TerminalSize
  #isResizing = false
  #wasSeen = false
  #writing: Promise<void> = Promise.resolve()
  #unwatched: NodeJS.Timeout | undefined
  #exit: TerminalExit | undefined
  /** How a viewer is told that it is over, once it is. */
  #farewell: ((viewer: Viewer) => void) | undefined
  readonly #seen = Promise.withResolvers<void>()

  constructor(terminal: SandboxTerminal, { cols, rows, command }: TerminalSize & { command?: string }) {
    this.#terminal = terminal
    this.#size = { cols, rows }
    this.#command = command
    this.over = this.#run()
    this.#closeUnwatched()
  }

  describe(): Terminal {
    return {
      id: this.id,
      ...(this.#command !== undefined && { command: this.#command }),
      ...this.#size,
      viewers: this.#viewers.size,
      createdAt: this.#createdAt,
      ...(this.#exit && { exit: this.#exit }),
    }
  }

  get hasEnded(): boolean {
    return this.#exit !== undefined
  }

  assertRoom(): void {
    if (this.#viewers.size >= MAX_VIEWERS)
      throw new AshError('too_many_readers', `A terminal has at most ${MAX_VIEWERS} viewers`)
  }

  /** Shows it until the viewer leaves or there is nothing more to see. */
  async show(viewer: Viewer, size: Partial<TerminalSize>): Promise<void> {
    clearTimeout(this.#unwatched)
    const wanted = { ...this.#size, ...size }
    viewer.tell({ type: 'ready', id: this.id, ...wanted })
    viewer.send(this.#scrollback.replay())
    this.#viewers.add(viewer)
    if (this.#farewell) this.#end(this.#farewell)
    viewer.obey({ input: (data) => this.#input(data), resize: (next) => this.#resize(next) })
    if (!isSame(wanted, this.#size)) this.#resize(wanted)
    else if (this.#wasSeen) void this.#redraw()
    this.#wasSeen = true
    await viewer.gone
    this.#viewers.delete(viewer)
    if (this.#viewers.size === 0) this.#closeUnwatched()
  }

  /** Also of one that nobody has seen the end of. */
  async close(): Promise<void> {
    this.#seen.resolve()
    await this.#terminal.close()
    await this.over
  }

  async #run(): Promise<void> {
    try {
      const exit = await this.#relay()
      this.#exit = exit
      this.#end((viewer) => {
        viewer.tell({ type: 'exit', ...exit })
        viewer.close(1000, 'The program has ended')
      })
      await this.#terminal.close()
      await Promise.race([this.#seen.promise, sleep(UNSEEN_MS, undefined, { ref: false })])
    } catch (error) {
      const [code, reason] = isAshError(error, 'interrupted') ? STOPPING : GONE
      this.#end((viewer) => viewer.close(code, reason))
      await this.#terminal.close()
    }
  }

  async #relay(): Promise<TerminalExit> {
    for (;;) {
      const output = await this.#terminal.read().catch(asHangUp)
      if ('exit' in output) return output.exit
      this.#scrollback.push(output.data)
      for (const viewer of this.#viewers) viewer.send(output.data)
      await Promise.all([...this.#viewers].map((viewer) => viewer.hasRoom()))
      const pauseMs = this.#pace.after(output.data.length, this.#viewers.size > 0)
      if (pauseMs > 0) await sleep(pauseMs)
    }
  }

  #end(farewell: (viewer: Viewer) => void): void {
    this.#farewell = farewell
    clearTimeout(this.#unwatched)
    if (this.#viewers.size > 0) this.#seen.resolve()
    for (const viewer of this.#viewers) farewell(viewer)
  }

  /** One after another, whoever types. */
  #input(data: Buffer): Promise<void> {
    this.#writing = this.#writing.then(() => this.#terminal.write(data)).catch(() => {}) // `#run` tells of the end.
    return this.#writing
  }

  /** The last one to say so decides, and all others are told. */
  #resize({ cols, rows }: TerminalSize): void {
    if (isSame({ cols, rows }, this.#size)) return
    this.#size = { cols, rows }
    for (const viewer of this.#viewers) viewer.tell({ type: 'resize', cols, rows })
    void this.#applySize()
  }

  /** One at a time; of those that come meanwhile, the last. */
  async #applySize(): Promise<void> {
    if (this.#isResizing) return
    this.#isResizing = true
    try {
      for (let applied: TerminalSize | undefined; applied !== this.#size; ) {
        applied = this.#size
        await this.#terminal.resize(applied)
      }
    } catch {
      // `#run` tells of the end.
    } finally {
      this.#isResizing = false
    }
  }

  /** A full-screen program draws everything anew when its size changes, and only then. */
  async #redraw(): Promise<void> {
    if (this.#isResizing) return
    this.#isResizing = true
    const { cols, rows } = this.#size
    try {
      await this.#terminal.resize({ cols, rows: rows > 1 ? rows - 1 : rows + 1 })
      await sleep(NUDGE_MS)
    } catch {
      // `#run` tells of the end.
    } finally {
      this.#isResizing = false
    }
    await this.#applySize()
  }

  #closeUnwatched(): void {
    if (!this.#farewell) this.#unwatched = setTimeout(() => void this.close(), UNWATCHED_MS).unref()
  }
}

/** It was closed while the last of its output was on its way. */
function asHangUp(error: unknown): { exit: TerminalExit } {
  if (isAshError(error, 'terminal_not_found')) return { exit: { code: null, signal: SIGHUP } }
  throw error
}
const SIGHUP = 1

const isSame = (one: TerminalSize, other: TerminalSize) => one.cols === other.cols && one.rows === other.rows
