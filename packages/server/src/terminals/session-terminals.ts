import { SandboxTerminal } from '@ash-ai/sandbox'
import { AshError, MAX_TERMINALS, type TerminalSize } from '@ash-ai/shared'
import type { LiveSession } from '../sessions/live-sessions.ts'
import { OpenTerminal } from './open-terminal.ts'

/** The terminals of one live session; they end with its sandbox. */
class SessionTerminals {
  readonly #live: LiveSession
  readonly #open = new Map<string, OpenTerminal>()
  #opening = 0

  constructor(live: LiveSession) {
    this.#live = live
  }

  list(): OpenTerminal[] {
    return [...this.#open.values()]
  }

  get(id: string): OpenTerminal {
    const terminal = this.#open.get(id)
    if (!terminal) throw terminalNotFound(this.#live.fence.sessionId, id)
    return terminal
  }

  async open({ command, ...size }: TerminalSize & { command?: string | undefined }): Promise<OpenTerminal> {
    const running = this.list().filter((terminal) => !terminal.hasEnded).length
    if (running + this.#opening >= MAX_TERMINALS)
      throw new AshError('too_many_terminals', `A session has at most ${MAX_TERMINALS} terminals; close one`)
    this.#opening++
    try {
      const spec = { ...size, ...(command !== undefined && { command }) }
      const opened = new OpenTerminal(await SandboxTerminal.open(this.#live.sandbox, spec), spec)
      this.#open.set(opened.id, opened)
      void opened.over.then(() => this.#open.delete(opened.id))
      return opened
    } finally {
      this.#opening--
    }
  }
}

export const terminalNotFound = (sessionId: string, id: string) =>
  new AshError('terminal_not_found', `Session ${sessionId} has no terminal ${id}`)

const terminalsOfSessions = new WeakMap<LiveSession, SessionTerminals>()

export function terminalsOf(live: LiveSession): SessionTerminals {
  const terminals = terminalsOfSessions.get(live) ?? new SessionTerminals(live)
  terminalsOfSessions.set(live, terminals)
  return terminals
}
