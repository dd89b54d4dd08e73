import { setMaxListeners } from 'node:events'
import {
  AshError,
  type BridgeCommand,
  type Language,
  MAX_OUTSTANDING_COMMANDS,
  type OutputStream,
  type SessionSetup,
  UNSOLICITED,
} from '@ash-ai/shared'
import { loadAgentSdk, type SDKMessage } from './agent-sdk.ts'
import type { BridgeConnection } from './bridge-connection.ts'
import { Conversation } from './conversation.ts'
import { Interpreters } from './execute/interpreters.ts'
import { startForwarder } from './forwarder.ts'
import { listListeningPorts } from './ports/listening-ports.ts'
import { openTunnel } from './ports/tunnel.ts'
import { proxyEnv } from './proxy-env.ts'
import { runCommand } from './run-command.ts'
import { Terminals } from './terminals/terminals.ts'
import { TurnFailure } from './turn-outcome.ts'

/** What the host tells the bridge at its start. */
export interface BridgeSettings {
  workspaceDir: string
  homeDir: string
  claude: string
  modelSocket: string
  egressSocket: string
  /** Where connections from outside to a port in here are taken up; none where there are no such. */
  tunnelSocket?: string | undefined
  /** Folder of the interpreter programs. */
  kernelsDir: string
  /** The native module that makes terminals; it need not be there. */
  ptyModule: string
  /** The sandbox's environment; everything run here starts from it. */
  env: Record<string, string>
}

/** What `configure` makes of a sandbox. */
interface LiveSession {
  env: Record<string, string>
  conversation: Conversation
}

/** Serves the commands of one host. */
export class Bridge {
  readonly #settings: BridgeSettings
  readonly #connection: BridgeConnection
  readonly #closing = new AbortController()
  readonly #interpreters: Interpreters
  readonly #terminals: Terminals
  #forwarders: Promise<{ egress: string; model: string }> | undefined
  #session: Promise<LiveSession> | undefined

  constructor(settings: BridgeSettings, connection: BridgeConnection) {
    this.#settings = settings
    this.#connection = connection
    this.#interpreters = new Interpreters(settings.workspaceDir, settings.kernelsDir)
    this.#terminals = new Terminals(settings.workspaceDir, settings.ptyModule)
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
    const session = await this.#session?.catch(() => undefined)
    await Promise.all([this.#interpreters.close(), this.#terminals.closeAll(), session?.conversation.close()])
  }

  async #run(command: BridgeCommand): Promise<void> {
    const { id } = command
    const answer = (data: unknown) => this.#connection.send({ ev: 'result', id, data })
    switch (command.cmd) {
      case 'preload':
        await (command.interpreter ? this.#startEarly(command.interpreter) : loadAgentSdk())
        await this.#forward()
        return answer({})
      case 'configure':
        // In the next round, when the answer has left: who waits for a session needs no way out of it yet.
        this.#session = new Promise(setImmediate).then(() => this.#open(command.session))
        this.#session.catch(() => {}) // Told to whoever needs it.
        return answer({})
      case 'query': {
        const { conversation } = await this.#configured()
        const data = await conversation.runTurn(command.content, command.options, {
          emit: (message) => this.#connection.sendMessage(id, message),
          sendPermission: (event) => this.#connection.send({ ...event, id }),
        })
        return this.#connection.send({ ev: 'done', id, data })
      }
      case 'resume':
        return answer(await (await this.#configured()).conversation.open(command.options))
      case 'interrupt':
        return answer({ interrupted: await (await this.#configured()).conversation.interrupt() })
      case 'permission': {
        const { conversation } = await this.#configured()
        return answer({ taken: conversation.decide(command.requestId, command.decision) })
      }
      case 'exec': {
        const { command: text, timeoutMs } = command
        const { env } = await this.#configured()
        const [cwd, { signal }] = [this.#settings.workspaceDir, this.#closing]
        return answer(await runCommand({ command: text, timeoutMs, cwd, env, signal }))
      }
      case 'start': {
        const { env } = await this.#configured()
        return answer(await this.#interpreters.start(command.language, { ...env, ...command.env }))
      }
      case 'execute': {
        const send = (output: { stream: OutputStream; data: string }) =>
          this.#connection.send({ ev: 'output', id, ...output })
        return answer(await this.#interpreters.execute(command, send))
      }
      case 'cancel':
        if (command.how === 'interrupt') this.#interpreters.interrupt(command.interpreter)
        else await this.#interpreters.stop(command.interpreter)
        return answer({})
      case 'stop':
        await this.#interpreters.stop(command.interpreter)
        return answer({})
      case 'ports':
        return answer({ ports: await listListeningPorts(await this.#ownPorts()) })
      case 'tunnel': {
        const { tunnelSocket } = this.#settings
        return answer(tunnelSocket ? await openTunnel(tunnelSocket, command) : { connected: false })
      }
      case 'terminal': {
        const { env } = await this.#configured()
        return answer(this.#terminals.start(command, env))
      }
      case 'terminal_read':
        return answer(await this.#terminals.read(command.terminal))
      case 'terminal_input':
        await this.#terminals.write(command.terminal, command.data)
        return answer({})
      case 'terminal_resize':
        this.#terminals.resize(command.terminal, command)
        return answer({})
      case 'terminal_close':
        await this.#terminals.close(command.terminal)
        return answer({})
      case 'ping':
        return this.#connection.send({ ev: 'pong', id })
      case 'shutdown':
        await this.close()
        return answer({})
    }
  }

  /** As far as it can be without a session: what is missing then comes with its first run. */
  async #startEarly({ language, env }: { language: Language; env: Record<string, string> }): Promise<void> {
    const { egress } = await this.#forward()
    await this.#interpreters.startEarly(language, { ...this.#settings.env, ...proxyEnv(egress), ...env })
  }

  async #open(session: SessionSetup): Promise<LiveSession> {
    const { workspaceDir, homeDir, claude, env: given } = this.#settings
    const { egress, model } = await this.#forward()
    const env = {
      ...given,
      ...proxyEnv(egress),
      ...session.env,
      HOME: homeDir,
      ASH_SESSION_ID: session.sessionId,
      ANTHROPIC_BASE_URL: model,
      // Not the key: a token that only this sandbox's model proxy takes.
      ANTHROPIC_API_KEY: session.modelToken,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    }
    const { sdkSessionId } = session
    const onUnsolicited = (message: SDKMessage) => this.#connection.sendMessage(UNSOLICITED, message)
    return {
      env,
      conversation: new Conversation({ workspaceDir, homeDir, claude, env, sdkSessionId, onUnsolicited }),
    }
  }

  /** The ways out, opened once: to the model API, and to what the network policy allows. */
  #forward(): Promise<{ egress: string; model: string }> {
    const { egressSocket, modelSocket } = this.#settings
    this.#forwarders ??= Promise.all([startForwarder(egressSocket), startForwarder(modelSocket)]).then(
      ([egress, model]) => ({ egress, model }),
      (error: unknown) => {
        this.#forwarders = undefined
        throw error
      },
    )
    return this.#forwarders
  }

  async #ownPorts(): Promise<Set<number>> {
    const forwarders = await this.#forwarders?.catch(() => undefined)
    return new Set(Object.values(forwarders ?? {}).map((url) => Number(new URL(url).port)))
  }

  #configured(): Promise<LiveSession> {
    if (this.#session !== undefined) return this.#session
    throw new TurnFailure('agent_failed', 'the sandbox has not been configured')
  }
}
