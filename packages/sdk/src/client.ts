import {
  DEFAULT_HOST,
  DEFAULT_PORT,
  type Execution,
  type GarbageReport,
  type GarbageRequest,
  type Health,
  type Ready,
} from '@ash-ai/shared'
import { AgentClient } from './agent-client.ts'
import { CheckpointClient } from './checkpoint-client.ts'
import { CredentialClient } from './credential-client.ts'
import { ExecutionClient } from './execution-client.ts'
import type { ExecutionStream } from './execution-stream.ts'
import { FileClient } from './file-client.ts'
import { Http, type RequestOptions } from './http.ts'
import { KernelClient } from './kernel-client.ts'
import { LONG_TIMEOUT_MS } from './long-timeout.ts'
import { PackageClient } from './package-client.ts'
import { PortClient } from './port-client.ts'
import { type ExecuteOptions, execute, executeStream, type SingleRun } from './run-code.ts'
import { SandboxClient } from './sandbox-client.ts'
import { SessionClient } from './session-client.ts'
import { TemplateClient } from './template-client.ts'
import { TerminalClient } from './terminal-client.ts'
import { WorkspaceClient } from './workspace-client.ts'

export interface AshClientOptions {
  /** Default `http://127.0.0.1:4100`. */
  baseUrl?: string | undefined
  apiKey?: string | undefined
  /** For each attempt of a request, default 60 s; what starts or saves a session or runs a command has its own. */
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
  readonly checkpoints: CheckpointClient
  readonly files: FileClient
  readonly workspace: WorkspaceClient
  readonly credentials: CredentialClient
  readonly executions: ExecutionClient
  readonly kernels: KernelClient
  readonly packages: PackageClient
  readonly sandboxes: SandboxClient
  readonly templates: TemplateClient
  readonly terminals: TerminalClient
  readonly ports: PortClient
  readonly #http: Http

  constructor(options: AshClientOptions = {}) {
    const baseUrl = toBaseUrl(options.baseUrl ?? `http://${DEFAULT_HOST}:${DEFAULT_PORT}`)
    this.#http = new Http({
      baseUrl,
      apiKey: options.apiKey,
      timeoutMs: options.timeoutMs ?? DEFAULT_TIMEOUT_MS,
      idleTimeoutMs: options.idleTimeoutMs ?? DEFAULT_TIMEOUT_MS,
      retries: options.retries ?? DEFAULT_RETRIES,
      fetch: options.fetch ?? globalThis.fetch,
    })
    this.agents = new AgentClient(this.#http)
    this.sessions = new SessionClient(this.#http)
    this.checkpoints = new CheckpointClient(this.#http)
    this.files = new FileClient(this.#http)
    this.workspace = new WorkspaceClient(this.#http)
    this.credentials = new CredentialClient(this.#http)
    this.executions = new ExecutionClient(this.#http)
    this.kernels = new KernelClient(this.#http)
    this.packages = new PackageClient(this.#http)
    this.sandboxes = new SandboxClient(this.#http)
    this.templates = new TemplateClient(this.#http)
    this.terminals = new TerminalClient(this.#http, baseUrl)
    this.ports = new PortClient(this.#http)
  }

  /** Runs code in a session of its own and waits for its outcome, also that of code that failed: `status` says. */
  async execute(run: SingleRun, options: ExecuteOptions = {}): Promise<Execution> {
    return await execute(this.#http, run, options)
  }

  /** Runs code at once; failures, a refusal among them, appear where the stream is consumed. */
  executeStream(run: Omit<SingleRun, 'async'>, options: ExecuteOptions = {}): ExecutionStream {
    return executeStream(this.#http, run, options)
  }

  /** Facts about the server; needs no key. */
  async health(options?: RequestOptions): Promise<Health> {
    return await this.#http.json({ ...options, method: 'GET', path: '/health' }, 'status')
  }

  /** Deletes stored files that no checkpoint refers to any more, or with `dryRun` counts them. */
  async gc(garbage: GarbageRequest = {}, options?: RequestOptions): Promise<GarbageReport> {
    const request = { timeoutMs: LONG_TIMEOUT_MS, ...options, method: 'POST' as const, path: '/api/gc' }
    return await this.#http.json<GarbageReport>({ ...request, json: garbage }, 'kept')
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
