import { DEFAULT_HOST, DEFAULT_PORT, type Health, type Ready } from '@ash-ai/shared'
import { AgentClient } from './agent-client.ts'
import { CredentialClient } from './credential-client.ts'
import { FileClient } from './file-client.ts'
import { Http, type RequestOptions } from './http.ts'
import { SessionClient } from './session-client.ts'

export interface AshClientOptions {
  /** Default `http://127.0.0.1:4100`. */
  baseUrl?: string | undefined
  apiKey?: string | undefined
  /** For each attempt of a request, default 60 s; what starts a session or runs a command has its own. */
  timeoutMs?: number | undefined
  /** How long an open stream may be silent; the server sends heartbeats. Default 60 s. */
  idleTimeoutMs?: number | undefined
  /** Repetitions of a failed request where repeating is safe, default 3. */
  retries?: number | undefined
  fetch?: typeof globalThis.fetch | undefined
}

const DEFAULT_TIMEOUT_MS = 60_000
const DEFAULT_RETRIES = 3

/** The Ash API. Every failure is an AshError, an AshConnectionError or an AshReplyError. */
export class AshClient {
  readonly agents: AgentClient
  readonly sessions: SessionClient
  readonly files: FileClient
  readonly credentials: CredentialClient
  readonly #http: Http

  constructor(options: AshClientOptions = {}) {
    this.#http = new Http({
      baseUrl: toBaseUrl(options.baseUrl ?? `http://${DEFAULT_HOST}:${DEFAULT_PORT}`),
      apiKey: options.apiKey,
      timeoutMs: options.timeoutMs ?? DEFAULT_TIMEOUT_MS,
      idleTimeoutMs: options.idleTimeoutMs ?? DEFAULT_TIMEOUT_MS,
      retries: options.retries ?? DEFAULT_RETRIES,
      fetch: options.fetch ?? globalThis.fetch,
    })
    this.agents = new AgentClient(this.#http)
    this.sessions = new SessionClient(this.#http)
    this.files = new FileClient(this.#http)
    this.credentials = new CredentialClient(this.#http)
  }

  /** Facts about the server; needs no key. */
  async health(options?: RequestOptions): Promise<Health> {
    return await this.#http.json({ ...options, method: 'GET', path: '/health' }, 'status')
  }

  async ready(options?: RequestOptions): Promise<Ready> {
    return await this.#http.json({ ...options, method: 'GET', path: '/ready' }, 'ready')
  }
}

function toBaseUrl(text: string): string {
  const url = new URL(text)
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    throw new TypeError(`Not an http(s) URL: ${text}`)
  // `fetch` refuses addresses with a name and password in them.
  if (url.username !== '' || url.password !== '')
    throw new TypeError('Pass the key as apiKey, not in the URL')
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`
}
