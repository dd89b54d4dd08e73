import type { Kernel, KernelCreate, Language } from '@ash-ai/shared'
import type { Http, RequestOptions } from './http.ts'
import { LONG_TIMEOUT_MS } from './long-timeout.ts'
import { sessionPath } from './paths.ts'

/** A kernel of a session; default the Python kernel `default`. */
export interface KernelRef {
  language?: Language | undefined
  name?: string | undefined
}

/** Kernels: interpreters that keep their variables from one execution to the next. */
export class KernelClient {
  readonly #http: Http

  constructor(http: Http) {
    this.#http = http
  }

  async list(sessionId: string, options?: RequestOptions): Promise<Kernel[]> {
    const request = { ...options, method: 'GET' as const, path: sessionPath(sessionId, 'kernels') }
    return (await this.#http.json<{ kernels: Kernel[] }>(request, 'kernels')).kernels
  }

  /** Starts one before its first execution does. */
  async create(sessionId: string, kernel: KernelCreate = {}, options?: RequestOptions): Promise<Kernel> {
    const path = sessionPath(sessionId, 'kernels')
    const request = { timeoutMs: LONG_TIMEOUT_MS, ...options, method: 'POST' as const, path, json: kernel }
    return (await this.#http.json<{ kernel: Kernel }>(request, 'kernel')).kernel
  }

  /** Ends it, with what runs and waits in it. */
  async delete(sessionId: string, kernel: KernelRef = {}, options?: RequestOptions): Promise<void> {
    await this.#http.done({ ...options, method: 'DELETE', path: kernelPath(sessionId, kernel) })
  }

  /** Begins anew, without variables. */
  async restart(sessionId: string, kernel: KernelRef = {}, options?: RequestOptions): Promise<Kernel> {
    const path = kernelPath(sessionId, kernel, 'restart')
    const request = { timeoutMs: LONG_TIMEOUT_MS, ...options, method: 'POST' as const, path }
    return (await this.#http.json<{ kernel: Kernel }>(request, 'kernel')).kernel
  }

  /** Stops what runs in it; its variables stay. */
  async interrupt(sessionId: string, kernel: KernelRef = {}, options?: RequestOptions): Promise<void> {
    const path = kernelPath(sessionId, kernel, 'interrupt')
    await this.#http.done({ ...options, method: 'POST', path })
  }
}

const kernelPath = (sessionId: string, kernel: KernelRef, ...rest: string[]) =>
  sessionPath(sessionId, 'kernels', kernel.language ?? 'python', kernel.name ?? 'default', ...rest)
