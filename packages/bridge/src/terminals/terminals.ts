import { existsSync } from 'node:fs'
import {
  AshError,
  type BridgeCommand,
  MAX_TERMINALS,
  type TerminalRead,
  type TerminalSize,
  type TerminalStart,
} from '@ash-ai/shared'
import { openPty } from './pty.ts'
import { Terminal } from './terminal.ts'

/** The terminals of one session. */
export class Terminals {
  readonly #cwd: string
  readonly #modulePath: string
  readonly #open = new Map<string, Terminal>()

  /** `modulePath`: the native module that makes terminals, read when the first one is wanted. */
  constructor(cwd: string, modulePath: string) {
    this.#cwd = cwd
    this.#modulePath = modulePath
  }

  start(
    { command, cols, rows }: Extract<BridgeCommand, { cmd: 'terminal' }>,
    env: Record<string, string>,
  ): TerminalStart {
    if (this.#open.size >= MAX_TERMINALS)
      throw new AshError('too_many_terminals', `A session may have ${MAX_TERMINALS} terminals at once`)
    const id = crypto.randomUUID()
    const pty = openPty(this.#modulePath, {
      program: existsSync('/bin/bash') ? '/bin/bash' : '/bin/sh',
      args: command === undefined ? [] : ['-c', command],
      cwd: this.#cwd,
      // The mark stands first, where it is found soonest, and no other variable takes its place.
      env: Object.assign({ ASH_RUN: id }, env, {
        ASH_RUN: id,
        TERM: 'xterm-256color',
        COLORTERM: 'truecolor',
      }),
      cols,
      rows,
    })
    this.#open.set(id, new Terminal(pty, `ASH_RUN=${id}`))
    return { terminal: id, pid: pty.pid }
  }

  /** Once it has told of the end, there is no such terminal any more. */
  async read(id: string): Promise<TerminalRead> {
    const read = await this.#get(id).read()
    if ('exit' in read) this.#open.delete(id)
    return read
  }

  async write(id: string, data: string): Promise<void> {
    await this.#get(id).write(Buffer.from(data, 'base64'))
  }

  resize(id: string, size: TerminalSize): void {
    this.#get(id).resize(size)
  }

  async close(id: string): Promise<void> {
    await this.#open.get(id)?.close()
    this.#open.delete(id)
  }

  async closeAll(): Promise<void> {
    await Promise.all([...this.#open.keys()].map((id) => this.close(id)))
  }

  #get(id: string): Terminal {
    const terminal = this.#open.get(id)
    if (terminal === undefined) throw new AshError('terminal_not_found', 'The terminal has ended')
    return terminal
  }
}
