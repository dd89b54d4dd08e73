import {
  AGENT_CONFIG_FILE,
  AGENT_STATE_FILE,
  type Execution,
  type FileEntry,
  isAshError,
  type Language,
  type LogLine,
  type Session,
  type SessionCreate,
  toTemplateName,
} from '@ash-ai/shared'
import type { AshClient } from './client.ts'
import { AshReplyError } from './errors.ts'
import type { SessionArtifact } from './execution-client.ts'
import type { FileContent, WrittenFile } from './file-client.ts'
import type { RequestOptions } from './http.ts'
import type { FormFile } from './multipart-body.ts'
import type { LogTailOptions } from './sandbox-client.ts'

export type SandboxStart = Omit<
  SessionCreate,
  'agent' | 'agentVersion' | 'mode' | 'template' | 'environment'
> & {
  /** A template by its name, whatever its case; `Python3` and `Node` are known too. Default `Python3`. */
  environment?: string | undefined
  /** Whatever describes the agent that will use the sandbox; kept as `agent/config.json` in the workspace. */
  agentConfig?: Record<string, unknown> | undefined
}

/** The provider is the one that really runs it. */
export interface StartedSandbox extends Pick<Session, 'provider'> {
  sessionId: string
  sandboxId: string | undefined
  status: 'running'
}

export interface CodeOptions extends RequestOptions {
  /** Default that of the environment. */
  language?: Language | undefined
  /** Of the run, in milliseconds; default that of the session. */
  timeout?: number | undefined
}

export type AgentState = Record<string, unknown>

const DEFAULT_ENVIRONMENT = 'Python3'
/** The port that stands for a sandbox where none is named. */
const SANDBOX_PORT = 8000

/**
 * Sandboxes for an agent that lives elsewhere: start one, run code in it, exchange files, keep its state, stop it. The
 * words are those of the sandbox system; the sessions are ordinary ones, and `client` does with them whatever else there is.
 */
export class Lifecycle {
  readonly client: AshClient

  constructor(client: AshClient) {
    this.client = client
  }

  /** Starts a sandbox in a session of its own, which sleeps when it is not used and wakes up by itself. */
  async start(sandbox: SandboxStart = {}, options?: RequestOptions): Promise<StartedSandbox> {
    const { environment = DEFAULT_ENVIRONMENT, agentConfig, ...session } = sandbox
    const template = await this.#findTemplate(environment, options)
    const { id, sandboxId, provider } = await this.client.sessions.create({ ...session, template }, options)
    if (agentConfig)
      await this.#writeJson(id, AGENT_CONFIG_FILE, agentConfig, options).catch(async (error: unknown) => {
        await this.stop(id).catch(() => {}) // Why it came to that says more.
        throw error
      })
    return { sessionId: id, sandboxId, provider, status: 'running' }
  }

  /**
   * Stops the sandbox and ends its session for good. Its files go with it, its state among them; `logs`, `artifacts` and
   * what was executed can still be read. To keep everything, pause the session instead: `client.sessions.stop`.
   */
  async stop(sessionId: string, options?: RequestOptions): Promise<void> {
    await this.client.sessions.end(sessionId, options)
  }

  /** Runs code, with the variables of the runs before it, and waits for the outcome: `status` says whether it failed. */
  async executeCode(sessionId: string, code: string, options: CodeOptions = {}): Promise<Execution> {
    const { language, timeout, ...request } = options
    return await this.client.sessions.execute(sessionId, { code, language, timeout }, request)
  }

  /** What is in a folder, without what is in those below; default the workspace itself. */
  async listFiles(sessionId: string, directory?: string, options?: RequestOptions): Promise<FileEntry[]> {
    const found: FileEntry[] = []
    const listing = { ...options, path: directory, recursive: false }
    for await (const file of this.client.files.listAll(sessionId, listing)) found.push(file)
    return found
  }

  async readFile(sessionId: string, path: string, options?: RequestOptions): Promise<Uint8Array> {
    return await this.client.files.read(sessionId, path, options)
  }

  async writeFile(
    sessionId: string,
    path: string,
    content: FileContent,
    options?: RequestOptions,
  ): Promise<WrittenFile> {
    return await this.client.files.write(sessionId, path, content, options)
  }

  /** Files of any length, into one folder: all of them, or none. */
  async uploadFiles(
    sessionId: string,
    files: FormFile[],
    options?: RequestOptions & { directory?: string | undefined },
  ): Promise<WrittenFile[]> {
    const { directory, ...request } = options ?? {}
    return await this.client.files.upload(sessionId, files, { ...request, path: directory })
  }

  /** A file of any length as it arrives. Leaving the loop closes the connection. */
  async downloadFile(
    sessionId: string,
    path: string,
    options?: RequestOptions,
  ): Promise<AsyncIterable<Uint8Array>> {
    return await this.client.files.readStream(sessionId, path, options)
  }

  /** What the agent knows, as it was last written; nothing before that. The code in the sandbox can write it as well. */
  async readState(sessionId: string, options?: RequestOptions): Promise<AgentState> {
    return (await this.#readJson(sessionId, AGENT_STATE_FILE, options)) ?? {}
  }

  /** Replaces it whole. It is a file of the workspace, `agent/state.json`, and as durable as that. */
  async writeState(sessionId: string, state: AgentState, options?: RequestOptions): Promise<void> {
    await this.#writeJson(sessionId, AGENT_STATE_FILE, state, options)
  }

  /** What the sandbox was started with; undefined where that was nothing. */
  async readAgentConfig(sessionId: string, options?: RequestOptions): Promise<AgentState | undefined> {
    return await this.#readJson(sessionId, AGENT_CONFIG_FILE, options)
  }

  /** What runs and set-up said, the last lines; also of a session that was stopped. */
  async logs(sessionId: string, options?: LogTailOptions): Promise<LogLine[]> {
    return await this.client.sandboxes.sessionLogs(sessionId, options)
  }

  /** Files that runs made or changed, newest first; also of a session that was stopped. */
  async artifacts(sessionId: string, options: RequestOptions = {}): Promise<SessionArtifact[]> {
    const found: SessionArtifact[] = []
    let cursor: string | undefined
    do {
      const page = await this.client.executions.artifacts(sessionId, { ...options, cursor })
      found.push(...page.artifacts)
      cursor = page.nextCursor
    } while (cursor !== undefined)
    return found
  }

  /** One of them as it arrives, as its run left it. */
  async downloadArtifact(
    sessionId: string,
    { executionId, path }: Pick<SessionArtifact, 'executionId' | 'path'>,
    options?: RequestOptions,
  ): Promise<AsyncIterable<Uint8Array>> {
    return await this.client.executions.download(sessionId, executionId, path, options)
  }

  /** A link to what a port inside serves; whoever has it needs no key. */
  async getSandboxUrl(sessionId: string, port = SANDBOX_PORT, options?: RequestOptions): Promise<string> {
    return (await this.client.ports.link(sessionId, port, {}, options)).url
  }

  async #findTemplate(environment: string, options?: RequestOptions): Promise<string> {
    const names: string[] = []
    let cursor: string | undefined
    do {
      const page = await this.client.templates.list({ ...options, cursor })
      names.push(...page.templates.map(({ name }) => name))
      cursor = page.nextCursor
    } while (cursor !== undefined)
    return toTemplateName(environment, names)
  }

  async #writeJson(sessionId: string, path: string, value: object, options?: RequestOptions): Promise<void> {
    await this.client.files.write(sessionId, path, JSON.stringify(value), options)
  }

  async #readJson(
    sessionId: string,
    path: string,
    options?: RequestOptions,
  ): Promise<AgentState | undefined> {
    try {
      return toObject(path, await this.client.files.readText(sessionId, path, options))
    } catch (error) {
      if (isAshError(error, 'file_not_found')) return undefined
      throw error
    }
  }
}

function toObject(path: string, text: string): AgentState {
  const value = parse(text)
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as AgentState
  throw new AshReplyError(`"${path}" holds no JSON object; write it anew`)
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
