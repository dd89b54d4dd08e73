import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { PermissionDecision, TurnDone } from '@ash-ai/shared'
import {
  type CanUseTool,
  loadAgentSdk,
  type Options,
  type Query,
  type SDKMessage,
  type SDKUserMessage,
} from './agent-sdk.ts'
import { MessageQueue } from './message-queue.ts'
import { askSetting, gateHooks } from './permission-gate.ts'
import { deny, PermissionRequests, type SendPermissionEvent, TURN_OVER } from './permission-requests.ts'
import { changedOptions, LIVE_OPTIONS, queryOptions, type TurnOptions } from './query-options.ts'
import { TurnFailure, turnOutcome } from './turn-outcome.ts'

const STDERR_TAIL_CHARS = 2_000

interface ConversationSetup {
  workspaceDir: string
  homeDir: string
  claude: string
  env: Record<string, string>
  sdkSessionId: string | undefined
  /** Takes SDK messages that come while no turn runs. */
  onUnsolicited: (message: SDKMessage) => Promise<void> | undefined
}

/** Where a turn's events go. */
interface TurnEvents {
  emit: (message: SDKMessage) => Promise<void> | undefined
  sendPermission: SendPermissionEvent
}

interface Turn {
  emit: TurnEvents['emit']
  permissions: PermissionRequests
  wasInterrupted: boolean
  /** Settles with the turn's first message, or with its end. */
  begun: Promise<void>
  begin: () => void
  finish: (outcome: Pick<TurnDone, 'stopReason' | 'usage'>) => void
  fail: (failure: TurnFailure) => void
}

interface OpenQuery {
  options: TurnOptions
  query: Query
  input: MessageQueue<SDKUserMessage>
  ended: Promise<void>
}

/**
 * One conversation of the agent SDK. A single open query serves all its turns, since a new `claude` process
 * costs half a second; it is opened anew, with `resume`, when it died or when an option cannot be changed live.
 */
export class Conversation {
  readonly #setup: ConversationSetup
  #sdkSessionId: string | undefined
  #open: OpenQuery | undefined
  #turn: Turn | undefined
  #preparing: Promise<unknown> = Promise.resolve()
  #stderr = ''

  constructor(setup: ConversationSetup) {
    this.#setup = setup
    this.#sdkSessionId = setup.sdkSessionId
  }

  /** Runs one turn to its result. Throws TurnFailure where the turn failed; the conversation goes on. */
  async runTurn(content: unknown, options: TurnOptions, events: TurnEvents): Promise<TurnDone> {
    if (this.#turn) throw new TurnFailure('turn_in_progress', 'a turn is already running')
    const { promise: begun, resolve: begin } = Promise.withResolvers<void>()
    const permissions = new PermissionRequests(events.sendPermission)
    const outcome = new Promise<Pick<TurnDone, 'stopReason' | 'usage'>>((finish, fail) => {
      this.#turn = { emit: events.emit, permissions, wasInterrupted: false, begun, begin, finish, fail }
    })
    outcome.catch(() => {}) // Awaited below, unless opening the query fails first.
    try {
      const { open, reopened } = await this.#prepare(options)
      open.input.push({
        type: 'user',
        message: { role: 'user', content: content as string },
        parent_tool_use_id: null,
      })
      return { ...(await outcome), ...(reopened.length > 0 && { reopened }) }
    } finally {
      this.#turn = undefined
      permissions.close()
      begin()
    }
  }

  /** Opens the query ahead of a turn. Says whether an earlier conversation goes on. */
  async open(options: TurnOptions): Promise<{ resumed: boolean }> {
    if (this.#turn) throw new TurnFailure('turn_in_progress', 'a turn is already running')
    await this.#prepare(options)
    return { resumed: this.#sdkSessionId !== undefined }
  }

  /** Stops the running turn; it ends with its own result. False where none runs. */
  async interrupt(): Promise<boolean> {
    const turn = this.#turn
    if (!turn) return false
    turn.wasInterrupted = true
    // Before that the agent is not at work on the turn, and an interrupt would pass it by.
    await turn.begun
    if (this.#turn !== turn || !this.#open) return false
    await this.#open.query.interrupt()
    return true
  }

  /** Hands the agent what it asked for. False where it does not wait for that, or no longer. */
  decide(requestId: string, decision: PermissionDecision): boolean {
    const turn = this.#turn
    if (!turn?.permissions.answer(requestId, decision)) return false
    if (decision.behavior === 'deny' && decision.interrupt) turn.wasInterrupted = true
    return true
  }

  async close(): Promise<void> {
    const open = this.#open
    this.#open = undefined
    open?.input.close()
    open?.query.close()
    await open?.ended
  }

  /** One at a time: opening ahead and a turn would otherwise start a process each. */
  #prepare(options: TurnOptions): Promise<{ open: OpenQuery; reopened: string[] }> {
    const prepared = this.#preparing.then(() => this.#openOrAdjust(options))
    this.#preparing = prepared.catch(() => {})
    return prepared
  }

  async #openOrAdjust(options: TurnOptions): Promise<{ open: OpenQuery; reopened: string[] }> {
    if (!this.#open) return { open: await this.#openQuery(options), reopened: [] }
    const changed = changedOptions(this.#open.options, options)
    const reopened = changed.filter((name) => !LIVE_OPTIONS.has(name))
    if (reopened.length > 0) {
      await this.close()
      return { open: await this.#openQuery(options), reopened }
    }
    const { query } = this.#open
    const { model, permissionMode } = queryOptions(options, {})
    if (changed.includes('model')) await query.setModel(model)
    if (changed.includes('permissionMode') && permissionMode) await query.setPermissionMode(permissionMode)
    this.#open.options = options
    return { open: this.#open, reopened: [] }
  }

  async #openQuery(options: TurnOptions): Promise<OpenQuery> {
    const { query: startQuery } = await loadAgentSdk()
    const input = new MessageQueue<SDKUserMessage>()
    const query = startQuery({
      prompt: input,
      options: queryOptions(options, await this.#hostOptions(options)),
    })
    const open: OpenQuery = { options, query, input, ended: Promise.resolve() }
    open.ended = this.#read(open)
    this.#open = open
    return open
  }

  async #hostOptions(options: TurnOptions): Promise<Options> {
    const { workspaceDir, claude, env } = this.#setup
    if (!(await this.#hasTranscript())) this.#sdkSessionId = undefined
    const ask = askSetting(options)
    return {
      cwd: workspaceDir,
      pathToClaudeCodeExecutable: claude,
      env,
      ...(this.#sdkSessionId !== undefined && { resume: this.#sdkSessionId }),
      // Without the callback the SDK refuses where it would ask, and offers the agent no questions.
      ...(ask !== undefined && { canUseTool: this.#canUseTool, hooks: gateHooks(ask) }),
      stderr: (text) => {
        this.#stderr = (this.#stderr + text).slice(-STDERR_TAIL_CHARS)
      },
    }
  }

  /** What runs on in the background between turns can ask nobody. */
  readonly #canUseTool: CanUseTool = async (...request) =>
    this.#turn ? this.#turn.permissions.ask(...request) : deny(TURN_OVER)

  /** Resuming a conversation whose transcript is gone fails, so it is begun anew instead. */
  async #hasTranscript(): Promise<boolean> {
    if (this.#sdkSessionId === undefined) return false
    const projects = join(this.#setup.homeDir, '.claude', 'projects')
    for (const folder of await readdir(projects).catch(() => [])) {
      const file = await stat(join(projects, folder, `${this.#sdkSessionId}.jsonl`)).catch(() => undefined)
      if (file?.isFile()) return true
    }
    return false
  }

  /** Reads the query to its end. Waiting for `emit` is what lets a full socket hold the reading back. */
  async #read(open: OpenQuery): Promise<void> {
    let reason = 'the agent process ended'
    try {
      for await (const message of open.query) {
        const taken = this.#take(message)
        if (taken !== undefined) await taken // A promise for every message would cost more than the message.
      }
    } catch (error) {
      reason = error instanceof Error ? error.message : String(error)
    }
    if (this.#open !== open) return // Closed on purpose.
    this.#open = undefined
    this.#turn?.fail(
      new TurnFailure('agent_crashed', [reason, this.#stderr.trim()].filter(Boolean).join(': ')),
    )
    this.#stderr = ''
  }

  /** Returns a promise only where the next message has to wait. */
  #take(message: SDKMessage): Promise<void> | undefined {
    if ('session_id' in message && message.session_id) this.#sdkSessionId = message.session_id
    const turn = this.#turn
    if (!turn) return this.#setup.onUnsolicited(message)
    turn.begin()
    const sent = turn.emit(message)
    if (message.type !== 'result') return sent
    if (sent !== undefined) return sent.then(() => finishTurn(turn, message))
    finishTurn(turn, message)
    return undefined
  }
}

function finishTurn(turn: Turn, result: Extract<SDKMessage, { type: 'result' }>): void {
  try {
    turn.finish(turnOutcome(result, turn.wasInterrupted))
  } catch (error) {
    turn.fail(error as TurnFailure)
  }
}
