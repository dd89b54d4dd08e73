import type { Port, PreviewLink, PreviewLinkCreate } from '@ash-ai/shared'
import type { Http, RequestOptions } from './http.ts'
import { sessionPath } from './paths.ts'

/** What listens inside a session, and links that show it. */
export class PortClient {
  readonly #http: Http

  constructor(http: Http) {
    this.#http = http
  }

  /** Of a session that is not awake, none. */
  async list(sessionId: string, options?: RequestOptions): Promise<Port[]> {
    const request = { ...options, method: 'GET' as const, path: sessionPath(sessionId, 'ports') }
    return (await this.#http.json<{ ports: Port[] }>(request, 'ports')).ports
  }

  /** A link to what a port serves, over HTTP; whoever has it needs no key. */
  async link(
    sessionId: string,
    port: number,
    link: PreviewLinkCreate = {},
    options?: RequestOptions,
  ): Promise<PreviewLink> {
    const path = sessionPath(sessionId, 'ports', String(port), 'links')
    return await this.#http.json<PreviewLink>({ ...options, method: 'POST', path, json: link }, 'url')
  }
}
