import { setMaxListeners } from 'node:events'
import {
  AshError,
  type BridgeCommand,
  MAX_OUTSTANDING_COMMANDS,
  type SessionSetup,
  UNSOLICITED,
} from '@ash-ai/shared'
import type { BridgeConnection } from './bridge-connection.ts'
import { Conversation } from './conversation.ts'
import { startForwarder } from './forwarder.ts'
import { proxyEnv } from './proxy-env.ts'
import { runCommand } from './run-command.ts'
import { TurnFailure } from './turn-outcome.ts'

/** What the host tells the bridge at its start. */
export interface BridgeSettings {
  workspaceDir: string
  homeDir: string
  claude: string
  modelSocket: string
  egressSocket: string
  /** The sandbox's environment; everything run here starts from it. */
  env: Record<string, string>
}

/** Serves the commands of one host. */
export class Bridge {
  readonly #settings: BridgeSettings
  readonly #connection: BridgeConnection
  readonly #closing = new AbortController()
  #env: Record<string, string> = {}
  #conversation: Conversation | undefined

  constructor(settings: BridgeSettings, connection: BridgeConnection) {
    this.#settings = settings
    this.#connection = connection
    setMaxListeners(MAX_OUTSTANDING_COMMANDS, this.#closing.signal)
  }

  /** Serves one command; each ends with exactly one `done`, `result`, `pong` or `error`. */
  async serve(command: BridgeCommand): Promise<void> {
    const { id } = command
    try {
      await this.#run(command)
    } catch (error) {
      const code = error instanceof TurnFailure || error instanceof AshError ? error.code : 'agent_failed'
      const text = error instanceof Error ? error.message : String(error)
      await this.#connection.send({ ev: 'error', id, code, error: text })
    }
  }

  /** Ends what runs here: the commands at once, the agent in order. */
  async close(): Promise<void> {
    this.#closing.abort()
    await this.#conversation?.close()
  }

  async #run(command: BridgeCommand): Promise<void> {
    const { id } = command
    const answer = (data: unknown) => this.#connection.send({ ev: 'result', id, data })
    switch (command.cmd) {
      case 'configure':
        return answer(await this.#configure(command.session))
      case 'query': {
        const data = await this.#session().runTurn(command.content, command.options, {
          emit: (message) => this.#connection.sendMessage(id, message),
          sendPermission: (event) => this.#connection.send({ ...event, id }),
        })
        return this.#connection.send({ ev: 'done', id, data })
      }
      case 'resume':
        return answer(await this.#session().open(command.options))
      case 'interrupt':
        return answer({ interrupted: await this.#session().interrupt() })
      case 'permission':
        return answer({ taken: this.#session().decide(command.requestId, command.decision) })
      case 'exec': {
        const { command: text, timeoutMs } = command
        const [cwd, env, { signal }] = [this.#settings.workspaceDir, this.#env, this.#closing]
        return answer(await runCommand({ command: text, timeoutMs, cwd, env, signal }))
      }
      case 'ping':
        return this.#connection.send({ ev: 'pong', id })
      case 'shutdown':
        await this.close()
        return answer({})
    }
  }

  async #configure(session: SessionSetup): Promise<object> {
    const { settings, connection } = { settings: this.#settings, connection: this.#connection }
    this.#env = {
      ...settings.env,
      ...proxyEnv(await startForwarder(settings.egressSocket)),
      ...session.env,
      HOME: settings.homeDir,
      ASH_SESSION_ID: session.sessionId,
      ANTHROPIC_BASE_URL: await startForwarder(settings.modelSocket),
      // Not the key: a token that only this sandbox's model proxy takes.
      ANTHROPIC_API_KEY: session.modelToken,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    }
    this.#conversation = new Conversation({
      workspaceDir: settings.workspaceDir,
      homeDir: settings.homeDir,
      claude: settings.claude,
      env: this.#env,
      sdkSessionId: session.sdkSessionId,
      onUnsolicited: (message) => connection.sendMessage(UNSOLICITED, message),
    })
    return {}
  }

  #session(): Conversation {
    if (!this.#conversation) throw new TurnFailure('agent_failed', 'the sandbox has not been configured')
    return this.#conversation
  }
}
