import { AshError, type Terminal, type TerminalCreate, type TerminalToken } from '@ash-ai/shared'
import type { Http, RequestOptions } from './http.ts'
import { LONG_TIMEOUT_MS } from './long-timeout.ts'
import { sessionPath } from './paths.ts'
import { TerminalConnection } from './terminal-connection.ts'

export interface TerminalOpenOptions extends RequestOptions {
  /** A terminal that is open already; without it, a new one. */
  id?: string | undefined
  cols?: number | undefined
  rows?: number | undefined
  /** For a new one: what runs in it; default an interactive shell. */
  command?: string | undefined
}

/** Programs with a terminal in the sandbox of a session. */
export class TerminalClient {
  readonly #http: Http
  readonly #baseUrl: string

  constructor(http: Http, baseUrl: string) {
    this.#http = http
    this.#baseUrl = baseUrl
  }

  async list(sessionId: string, options?: RequestOptions): Promise<Terminal[]> {
    const request = { ...options, method: 'GET' as const, path: sessionPath(sessionId, 'terminals') }
    return (await this.#http.json<{ terminals: Terminal[] }>(request, 'terminals')).terminals
  }

  /** Opens one that nobody looks at yet. */
  async create(
    sessionId: string,
    terminal: TerminalCreate = {},
    options?: RequestOptions,
  ): Promise<Terminal> {
    const path = sessionPath(sessionId, 'terminals')
    const request = { timeoutMs: LONG_TIMEOUT_MS, ...options, method: 'POST' as const, path, json: terminal }
    return (await this.#http.json<{ terminal: Terminal }>(request, 'terminal')).terminal
  }

  /** Connects to a new terminal, or to one that is open; wakes the session. */
  async open(sessionId: string, options: TerminalOpenOptions = {}): Promise<TerminalConnection> {
    const { id: known, cols, rows, command, ...rest } = options
    const size = { ...(cols !== undefined && { cols }), ...(rows !== undefined && { rows }) }
    const spec = { ...size, ...(command !== undefined && { command }) }
    const id = known ?? (await this.create(sessionId, spec, rest)).id
    const { token } = await this.token(sessionId, rest)
    const query = new URLSearchParams({ id, token })
    for (const [name, value] of Object.entries(size)) query.set(name, String(value))
    const url = `${this.#baseUrl.replace(/^http/, 'ws')}${sessionPath(sessionId, 'terminal')}?${query}`
    return TerminalConnection.open(url, rest.signal).catch(async (error: unknown) => {
      // A WebSocket that is refused does not say why.
      const open = await this.list(sessionId, rest)
      if (open.some((terminal) => terminal.id === id)) throw error
      throw new AshError('terminal_not_found', `Session ${sessionId} has no terminal ${id}`)
    })
  }

  /** Ends it, with everything that was started in it. */
  async delete(sessionId: string, terminalId: string, options?: RequestOptions): Promise<void> {
    await this.#http.done({
      ...options,
      method: 'DELETE',
      path: sessionPath(sessionId, 'terminals', terminalId),
    })
  }

  /** Lets a browser connect, for a minute: `?token=` in place of a key. */
  async token(sessionId: string, options?: RequestOptions): Promise<TerminalToken> {
    const path = sessionPath(sessionId, 'terminal', 'tokens')
    return await this.#http.json<TerminalToken>({ ...options, method: 'POST', path }, 'token')
  }
}
