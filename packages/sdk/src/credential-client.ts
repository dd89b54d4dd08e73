import type { Credential, CredentialCreate } from '@ash-ai/shared'
import type { PageOptions } from './agent-client.ts'
import type { Http, RequestOptions } from './http.ts'
import { credentialPath } from './paths.ts'

/** Credentials: secrets that sessions use without seeing them. */
export class CredentialClient {
  readonly #http: Http

  constructor(http: Http) {
    this.#http = http
  }

  /** Stores a credential, or replaces the one of that name, also for sessions that are live. */
  async create(credential: CredentialCreate, options?: RequestOptions): Promise<Credential> {
    const request = { ...options, method: 'POST' as const, path: '/api/credentials', json: credential }
    return (await this.#http.json<{ credential: Credential }>(request, 'credential')).credential
  }

  async list(options: PageOptions = {}): Promise<{ credentials: Credential[]; nextCursor?: string }> {
    const { limit, cursor, ...rest } = options
    return await this.#http.json(
      { ...rest, method: 'GET', path: '/api/credentials', query: { limit, cursor } },
      'credentials',
    )
  }

  /** Everything but the secret. */
  async get(name: string, options?: RequestOptions): Promise<Credential> {
    const request = { ...options, method: 'GET' as const, path: credentialPath(name) }
    return (await this.#http.json<{ credential: Credential }>(request, 'credential')).credential
  }

  async delete(name: string, options?: RequestOptions): Promise<void> {
    await this.#http.done({ ...options, method: 'DELETE', path: credentialPath(name) })
  }
}
