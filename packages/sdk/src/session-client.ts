import {
  type AcceptedReply,
  type AgentOptions,
  DEFAULT_EXEC_TIMEOUT_MS,
  type EventType,
  type ExecReply,
  type ExecRequest,
  type Execution,
  type ForkRequest,
  type InterruptReply,
  type LogEntry,
  type MessageSend,
  type PermissionAnswer,
  type PermissionRequest,
  type PermissionResolution,
  type ResumePath,
  type RollbackRequest,
  type Session,
  type SessionCreate,
  type SessionPatch,
  type SessionStatus,
} from '@ash-ai/shared'
import type { PageOptions } from './agent-client.ts'
import { type FollowOptions, readLog } from './event-stream.ts'
import type { SessionEvent } from './events.ts'
import type { ExecutionStream } from './execution-stream.ts'
import type { Http, HttpRequest, RequestOptions } from './http.ts'
import { LONG_TIMEOUT_MS } from './long-timeout.ts'
import { sessionPath } from './paths.ts'
import { type ExecuteOptions, execute, executeStream, type SessionRun } from './run-code.ts'
import { Turn } from './turn.ts'

export interface SessionListOptions extends PageOptions {
  agent?: string | undefined
  template?: string | undefined
  status?: SessionStatus | undefined
}

export interface MessageListOptions extends RequestOptions {
  /** Entries with a larger `seq`. */
  after?: number | undefined
  limit?: number | undefined
  /** `nextCursor` of the page before. */
  cursor?: string | undefined
}

export interface EventListOptions extends MessageListOptions {
  types?: readonly EventType[] | undefined
  turnId?: string | undefined
}

/** Options of the agent SDK for this message, besides those of every call. */
export type SendOptions = AgentOptions &
  RequestOptions & {
    /** Wait for the turn under way instead of failing with `turn_in_progress`. */
    queue?: boolean | undefined
    /** The message is taken once, however often it is sent with this key; default a new one for each call. */
    idempotencyKey?: string | undefined
  }

/** A session that was resumed, and what that took. */
export type ResumedSession = Session & { resumed: ResumePath }

/** What an `exec` may take longer than the command itself: the session may have to resume first. */
const EXEC_MARGIN_MS = 30_000

/** Sessions: conversations and code, with their turns, runs and commands. */
export class SessionClient {
  readonly #http: Http

  constructor(http: Http) {
    this.#http = http
  }

  /** Waits up to 290 s unless told otherwise: the set-up of an agent may take minutes, once. */
  async create(session: SessionCreate, options?: RequestOptions): Promise<Session> {
    const timeoutMs = LONG_TIMEOUT_MS
    const request = { timeoutMs, ...options, method: 'POST' as const, path: '/api/sessions', json: session }
    return (await this.#http.json<{ session: Session }>(request, 'session')).session
  }

  async list(options: SessionListOptions = {}): Promise<{ sessions: Session[]; nextCursor?: string }> {
    const { agent, template, status, limit, cursor, ...rest } = options
    const query = { agent, template, status, limit, cursor }
    return await this.#http.json({ ...rest, method: 'GET', path: '/api/sessions', query }, 'sessions')
  }

  async get(id: string, options?: RequestOptions): Promise<Session> {
    return await this.#change('GET', sessionPath(id), options)
  }

  /** Changes what a session may reach or spend, at once. */
  async patch(id: string, change: SessionPatch, options?: RequestOptions): Promise<Session> {
    const request = { ...options, method: 'PATCH' as const, path: sessionPath(id), json: change }
    return (await this.#http.json<{ session: Session }>(request, 'session')).session
  }

  /** Ends a session for good. */
  async end(id: string, options?: RequestOptions): Promise<Session> {
    return await this.#change('DELETE', sessionPath(id), options)
  }

  /** Saves files and conversation and freezes the sandbox. A turn under way has 30 s to end by itself. */
  async pause(id: string, options?: RequestOptions): Promise<Session> {
    return await this.#change('POST', sessionPath(id, 'pause'), { timeoutMs: LONG_TIMEOUT_MS, ...options })
  }

  /** Pauses a session and lets go of its sandbox. */
  async stop(id: string, options?: RequestOptions): Promise<Session> {
    return await this.#change('POST', sessionPath(id, 'stop'), { timeoutMs: LONG_TIMEOUT_MS, ...options })
  }

  /** Makes a paused session active; a message does the same by itself. */
  async resume(id: string, options?: RequestOptions): Promise<ResumedSession> {
    const path = sessionPath(id, 'resume')
    const request = { timeoutMs: LONG_TIMEOUT_MS, ...options, method: 'POST' as const, path }
    const reply = await this.#http.json<{ session: Session; resumed: ResumePath }>(request, 'session')
    return { ...reply.session, resumed: reply.resumed }
  }

  /** A new session, paused, with files and conversation of this one as they are now or at a checkpoint. */
  async fork(id: string, fork: ForkRequest = {}, options?: RequestOptions): Promise<Session> {
    return await this.#moveTo(sessionPath(id, 'fork'), fork, options)
  }

  /** Takes files and conversation back to a checkpoint. What was there is saved first. */
  async rollback(id: string, rollback: RollbackRequest, options?: RequestOptions): Promise<Session> {
    return await this.#moveTo(sessionPath(id, 'rollback'), rollback, options)
  }

  /**
   * Sends a message at once and returns its turn. Failures, a refused message among them, appear where the
   * turn is consumed.
   */
  send(id: string, content: MessageSend['content'], options: SendOptions = {}): Turn {
    const { request, message } = toSendRequest(id, content, options)
    const open = () => this.#http.stream(message)
    const opening = open()
    // Reported where the turn is read; a turn nobody reads must not bring the process down.
    opening.catch(() => {})
    return new Turn(readLog(this.#http, id, request, { opening, again: open }))
  }

  /** Sends a message and returns as soon as it is durable; the log tells of its turn. */
  async sendAsync(
    id: string,
    content: MessageSend['content'],
    options: SendOptions = {},
  ): Promise<AcceptedReply> {
    const { message } = toSendRequest(id, content, options)
    return await this.#http.json<AcceptedReply>({ ...message, query: { async: 'true' } }, 'turnId')
  }

  /** One page of the conversation, oldest first. */
  async messages(
    id: string,
    options: MessageListOptions = {},
  ): Promise<{ messages: LogEntry[]; nextCursor?: string }> {
    const { after, limit, cursor, ...rest } = options
    const path = sessionPath(id, 'messages')
    return await this.#http.json(
      { ...rest, method: 'GET', path, query: { after, limit, cursor } },
      'messages',
    )
  }

  /** One page of the log, oldest first: all of it, or some types, or one turn. */
  async events(
    id: string,
    options: EventListOptions = {},
  ): Promise<{ events: LogEntry[]; nextCursor?: string }> {
    const { after, limit, cursor, types, turnId, ...rest } = options
    const query = { after, limit, cursor, types: types?.join(','), turnId }
    return await this.#http.json({ ...rest, method: 'GET', path: sessionPath(id, 'events'), query }, 'events')
  }

  /** The session's log from `after` on and live from then on, until the session ends or the loop is left. */
  async *follow(id: string, options: FollowOptions = {}): AsyncGenerator<SessionEvent> {
    for await (const event of readLog(this.#http, id, options)) {
      yield event
      if (event.type === 'status' && event.data.status === 'ended') return
    }
  }

  /** Stops the turn under way and cancels those that wait. */
  async interrupt(id: string, options?: RequestOptions): Promise<InterruptReply> {
    const path = sessionPath(id, 'interrupt')
    return await this.#http.json<InterruptReply>({ ...options, method: 'POST', path }, 'cancelled')
  }

  /** What the agent asks and waits for, oldest first. */
  async permissions(id: string, options?: RequestOptions): Promise<PermissionRequest[]> {
    const request = { ...options, method: 'GET' as const, path: sessionPath(id, 'permissions') }
    return (await this.#http.json<{ permissions: PermissionRequest[] }>(request, 'permissions')).permissions
  }

  /** Answers a permission request or a question. The first answer counts; a later one is refused. */
  async answer(
    id: string,
    requestId: string,
    answer: PermissionAnswer,
    options?: RequestOptions,
  ): Promise<PermissionResolution> {
    const path = sessionPath(id, 'permissions', requestId)
    const request = { ...options, method: 'POST' as const, path, json: answer }
    return (await this.#http.json<{ permission: PermissionResolution }>(request, 'permission')).permission
  }

  /** Runs a shell command in the session's sandbox. Node's own `fetch` gives up on any reply after 300 s. */
  async exec(id: string, command: ExecRequest, options?: RequestOptions): Promise<ExecReply> {
    const timeoutMs = (command.timeout ?? DEFAULT_EXEC_TIMEOUT_MS) + EXEC_MARGIN_MS
    const path = sessionPath(id, 'exec')
    return await this.#http.json({ timeoutMs, ...options, method: 'POST', path, json: command }, 'exitCode')
  }

  /** Runs code and waits for its outcome, also that of code that failed: `status` says. */
  async execute(id: string, run: SessionRun, options: ExecuteOptions = {}): Promise<Execution> {
    return await execute(this.#http, run, options, id)
  }

  /** Runs code at once; failures, a refusal among them, appear where the stream is consumed. */
  executeStream(id: string, run: Omit<SessionRun, 'async'>, options: ExecuteOptions = {}): ExecutionStream {
    return executeStream(this.#http, run, options, id)
  }

  async #moveTo(path: string, json: object, options?: RequestOptions): Promise<Session> {
    const request = { timeoutMs: LONG_TIMEOUT_MS, ...options, method: 'POST' as const, path, json }
    return (await this.#http.json<{ session: Session }>(request, 'session')).session
  }

  async #change(method: 'GET' | 'POST' | 'DELETE', path: string, options?: RequestOptions): Promise<Session> {
    return (await this.#http.json<{ session: Session }>({ ...options, method, path }, 'session')).session
  }
}

function toSendRequest(
  id: string,
  content: MessageSend['content'],
  options: SendOptions,
): { request: RequestOptions; message: HttpRequest } {
  const { signal, timeoutMs, retries, idempotencyKey = crypto.randomUUID(), ...rest } = options
  const request = { signal, timeoutMs, retries }
  const path = sessionPath(id, 'messages')
  return {
    request,
    message: { ...request, method: 'POST', path, json: { ...rest, content }, idempotencyKey },
  }
}
