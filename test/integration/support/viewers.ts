import { randomBytes } from 'node:crypto'
import { request } from 'node:http'
import type { Socket } from 'node:net'
import type { TerminalConnection } from '@ash-ai/sdk'
import { eventually } from './sandbox-processes.ts'
import type { TestServer } from './test-server.ts'

/** What one viewer of a terminal has seen. */
export class Screen {
  readonly connection: TerminalConnection
  #bytes: Buffer[] = []

  constructor(connection: TerminalConnection) {
    this.connection = connection
    connection.onData((data) => this.#bytes.push(Buffer.from(data)))
  }

  get text(): string {
    return Buffer.concat(this.#bytes).toString()
  }

  type(keys: string): void {
    this.connection.write(keys)
  }

  /** Waits until that has been shown. */
  async shows(text: string | RegExp): Promise<string> {
    const isThere = (seen: string) => (typeof text === 'string' ? seen.includes(text) : text.test(seen))
    return await eventually(() => this.text, isThere)
  }

  forget(): void {
    this.#bytes = []
  }
}

interface Attempt {
  query?: Record<string, string>
  headers?: Record<string, string>
}

/** Asks for a WebSocket by hand: gives the connection, or says why there is none, which a WebSocket does not. */
export async function askForTerminal(
  server: TestServer,
  sessionId: string,
  { query = {}, headers = {} }: Attempt,
): Promise<{ status: number; code?: string; socket?: Socket }> {
  const url = new URL(`/api/sessions/${sessionId}/terminal?${new URLSearchParams(query)}`, server.url)
  const upgrade = {
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-version': '13',
    'sec-websocket-key': randomBytes(16).toString('base64'),
  }
  const asked = request(url, { headers: { ...upgrade, ...headers } })
  asked.end()
  return await new Promise((resolve, reject) => {
    asked.on('error', reject)
    asked.on('upgrade', (_response, socket) => resolve({ status: 101, socket }))
    asked.on('response', (response) => {
      let body = ''
      response.on('data', (chunk) => (body += chunk))
      response.on('end', () => resolve({ status: response.statusCode ?? 0, ...JSON.parse(body) }))
    })
  })
}
