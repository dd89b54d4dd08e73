import type { Template, TemplateCreate } from '@ash-ai/shared'
import type { PageOptions } from './agent-client.ts'
import type { Http, RequestOptions } from './http.ts'
import { templatePath } from './paths.ts'

/** Templates: environments that sessions begin with. */
export class TemplateClient {
  readonly #http: Http

  constructor(http: Http) {
    this.#http = http
  }

  /** By name, those built in among them. */
  async list(options: PageOptions = {}): Promise<{ templates: Template[]; nextCursor?: string }> {
    const { limit, cursor, ...rest } = options
    return await this.#http.json(
      { ...rest, method: 'GET', path: '/api/templates', query: { limit, cursor } },
      'templates',
    )
  }

  async get(name: string, options?: RequestOptions): Promise<Template> {
    const request = { ...options, method: 'GET' as const, path: templatePath(name) }
    return (await this.#http.json<{ template: Template }>(request, 'template')).template
  }

  /** Fails where the name is taken. */
  async create(template: TemplateCreate, options?: RequestOptions): Promise<Template> {
    const request = { ...options, method: 'POST' as const, path: '/api/templates', json: template }
    return (await this.#http.json<{ template: Template }>(request, 'template')).template
  }

  /** Creates or replaces it whole. Sessions that exist keep what they began with. */
  async put({ name, ...settings }: TemplateCreate, options?: RequestOptions): Promise<Template> {
    const request = { ...options, method: 'PUT' as const, path: templatePath(name), json: settings }
    return (await this.#http.json<{ template: Template }>(request, 'template')).template
  }

  async delete(name: string, options?: RequestOptions): Promise<void> {
    await this.#http.done({ ...options, method: 'DELETE', path: templatePath(name) })
  }
}
