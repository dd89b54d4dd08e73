import type { Agent, AgentDeploy, AgentVersion } from '@ash-ai/shared'
import type { Http, RequestOptions } from './http.ts'
import { agentPath } from './paths.ts'

export interface PageOptions extends RequestOptions {
  limit?: number | undefined
  cursor?: string | undefined
}

/** Agents: deployed folders. */
export class AgentClient {
  readonly #http: Http

  constructor(http: Http) {
    this.#http = http
  }

  /** Deploys a folder given as files. The same content again changes nothing; other content is a new version. */
  async deploy(agent: AgentDeploy, options?: RequestOptions): Promise<Agent> {
    const request = { ...options, method: 'POST' as const, path: '/api/agents', json: agent }
    return (await this.#http.json<{ agent: Agent }>(request, 'agent')).agent
  }

  /** Deploys a folder given as a tar archive, gzipped or not. */
  async deployArchive(
    name: string,
    archive: Uint8Array<ArrayBuffer>,
    options?: RequestOptions,
  ): Promise<Agent> {
    const isGzip = archive[0] === 0x1f && archive[1] === 0x8b
    const request = {
      ...options,
      method: 'POST' as const,
      path: '/api/agents',
      query: { name },
      bytes: archive,
      headers: { 'content-type': isGzip ? 'application/gzip' : 'application/x-tar' },
    }
    return (await this.#http.json<{ agent: Agent }>(request, 'agent')).agent
  }

  async list(options: PageOptions = {}): Promise<{ agents: Agent[]; nextCursor?: string }> {
    const { limit, cursor, ...rest } = options
    return await this.#http.json(
      { ...rest, method: 'GET', path: '/api/agents', query: { limit, cursor } },
      'agents',
    )
  }

  async get(name: string, options?: RequestOptions): Promise<Agent> {
    const request = { ...options, method: 'GET' as const, path: agentPath(name) }
    return (await this.#http.json<{ agent: Agent }>(request, 'agent')).agent
  }

  async versions(name: string, options?: RequestOptions): Promise<AgentVersion[]> {
    const request = { ...options, method: 'GET' as const, path: agentPath(name, 'versions') }
    return (await this.#http.json<{ versions: AgentVersion[] }>(request, 'versions')).versions
  }

  async delete(name: string, options?: RequestOptions): Promise<void> {
    await this.#http.done({ ...options, method: 'DELETE', path: agentPath(name) })
  }
}
