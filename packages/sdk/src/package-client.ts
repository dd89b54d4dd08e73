import type { InstalledPackages, PackageInstall, PackageInstallRequest } from '@ash-ai/shared'
import type { Http, RequestOptions } from './http.ts'
import { LONG_TIMEOUT_MS } from './long-timeout.ts'
import { sessionPath } from './paths.ts'

/** A little more than the server takes at most, so that it is the server who says so. */
const INSTALL_TIMEOUT_MS = LONG_TIMEOUT_MS + 8_000

/** Packages in the environment of a session. */
export class PackageClient {
  readonly #http: Http

  constructor(http: Http) {
    this.#http = http
  }

  /** What the session has of its own, and what became of the newest installation. */
  async list(sessionId: string, options?: RequestOptions): Promise<InstalledPackages> {
    const path = sessionPath(sessionId, 'packages')
    return await this.#http.json({ timeoutMs: LONG_TIMEOUT_MS, ...options, method: 'GET', path }, 'pip')
  }

  /** Waits for the end, unless `async`. What pip or npm refuses is `setup_failed`. */
  async install(
    sessionId: string,
    packages: PackageInstallRequest,
    options?: RequestOptions,
  ): Promise<PackageInstall> {
    const path = sessionPath(sessionId, 'packages')
    const request = { timeoutMs: INSTALL_TIMEOUT_MS, retries: 0, ...options, method: 'POST' as const, path }
    const reply = await this.#http.json<{ install: PackageInstall }>(
      { ...request, json: packages },
      'install',
    )
    return reply.install
  }
}
