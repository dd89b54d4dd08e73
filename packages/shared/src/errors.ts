/**
 * Every failure a client can see. `retryable` says that the same request may succeed later without being
 * changed; `docs/errors.md` is this table.
 */
export const ERRORS = {
  validation_failed: {
    status: 400,
    retryable: false,
    summary: 'The request is malformed; `details` names each field.',
  },
  path_invalid: {
    status: 400,
    retryable: false,
    summary: 'The path leaves the workspace, crosses a link or is not allowed.',
  },
  not_a_file: {
    status: 400,
    retryable: false,
    summary: 'The path names a directory, link or device where a file is needed.',
  },
  archive_invalid: {
    status: 400,
    retryable: false,
    summary: 'The uploaded archive is broken or holds entries that are not allowed.',
  },
  agent_invalid: {
    status: 400,
    retryable: false,
    summary: 'The agent folder cannot be deployed, for example because CLAUDE.md is missing.',
  },
  unauthorized: {
    status: 401,
    retryable: false,
    summary: 'The API key is missing or wrong. Send `Authorization: Bearer <key>`.',
  },
  forbidden: { status: 403, retryable: false, summary: 'This server does not allow that operation.' },
  route_not_found: { status: 404, retryable: false, summary: 'No such path. See /docs.' },
  agent_not_found: { status: 404, retryable: false, summary: 'No agent has that name. Deploy it first.' },
  template_not_found: {
    status: 404,
    retryable: false,
    summary: 'No template has that name. See /api/templates.',
  },
  session_not_found: { status: 404, retryable: false, summary: 'No session has that id.' },
  credential_not_found: { status: 404, retryable: false, summary: 'No credential has that name.' },
  execution_not_found: {
    status: 404,
    retryable: false,
    summary: 'The session has no execution with that id.',
  },
  artifact_not_found: {
    status: 404,
    retryable: false,
    summary: 'The execution left no such file, or it is kept no longer.',
  },
  sandbox_not_found: { status: 404, retryable: false, summary: 'No such sandbox, or it has ended.' },
  kernel_not_found: { status: 404, retryable: false, summary: 'The session has no kernel of that name.' },
  terminal_not_found: {
    status: 404,
    retryable: false,
    summary: 'The session has no terminal with that id, or it has ended. Open another.',
  },
  permission_not_found: {
    status: 404,
    retryable: false,
    summary: 'The session has no permission request with that id.',
  },
  checkpoint_not_found: {
    status: 404,
    retryable: false,
    summary: 'The session has no checkpoint with that id.',
  },
  file_not_found: { status: 404, retryable: false, summary: 'The workspace has no such file.' },
  method_not_allowed: { status: 405, retryable: false, summary: 'The path exists, but not for this method.' },
  file_exists: {
    status: 409,
    retryable: false,
    summary: 'Something is at that path already. Choose another, or say that it may be replaced.',
  },
  agent_in_use: {
    status: 409,
    retryable: false,
    summary: 'Sessions that have not ended still use the agent.',
  },
  template_in_use: {
    status: 409,
    retryable: false,
    summary: 'Sessions that have not ended, or agents, still use the template.',
  },
  template_conflict: {
    status: 409,
    retryable: false,
    summary: 'A template of that name exists, or is built in and cannot be changed.',
  },
  no_agent: {
    status: 409,
    retryable: false,
    summary: 'The session runs code and has no agent to talk to. Create one with `agent`.',
  },
  interpreter_gone: {
    status: 409,
    retryable: true,
    summary: 'The interpreter ended before the run began. Send the code again.',
  },
  execution_finished: {
    status: 409,
    retryable: false,
    summary: 'The execution has ended and cannot be cancelled any more.',
  },
  execution_unfinished: {
    status: 409,
    retryable: true,
    summary: 'The execution has not ended, so it has no result yet. Ask again later.',
  },
  install_in_progress: {
    status: 409,
    retryable: true,
    summary: 'Packages are being installed in the session; one installation runs at a time.',
  },
  session_conflict: {
    status: 409,
    retryable: true,
    summary: 'The session changed state meanwhile. Read it and try again.',
  },
  session_ended: { status: 409, retryable: false, summary: 'The session has ended. Create a new one.' },
  session_paused: {
    status: 409,
    retryable: false,
    summary: 'The session is paused and was made with `autoResume: false`. Resume it first.',
  },
  no_checkpoint: {
    status: 409,
    retryable: false,
    summary: 'The session has no checkpoint yet. Send a message, or pause it once.',
  },
  turn_in_progress: {
    status: 409,
    retryable: true,
    summary: 'The session is still working on the previous message.',
  },
  idempotency_conflict: {
    status: 409,
    retryable: false,
    summary: 'The Idempotency-Key belongs to a different message. Use a new key.',
  },
  cancelled: {
    status: 409,
    retryable: false,
    summary: 'The message waited in the queue and was cancelled before its turn began.',
  },
  no_turn: { status: 409, retryable: false, summary: 'The session is not working on a message.' },
  permission_settled: {
    status: 409,
    retryable: false,
    summary: 'The permission request waits no longer: it was answered, has expired or was withdrawn.',
  },
  session_gone: { status: 410, retryable: false, summary: 'An ended session cannot be resumed.' },
  precondition_failed: {
    status: 412,
    retryable: false,
    summary: 'The file is not, or is no longer, the one that If-Match or If-None-Match names. Read it again.',
  },
  upgrade_required: {
    status: 426,
    retryable: false,
    summary: 'The path speaks WebSocket only. Connect with `ws://` or `wss://`.',
  },
  payload_too_large: {
    status: 413,
    retryable: false,
    summary: 'The body or one of its parts exceeds the limit named.',
  },
  unsupported_media_type: {
    status: 415,
    retryable: false,
    summary: 'Send JSON, or for uploads a tar or gzipped tar.',
  },
  queue_full: {
    status: 429,
    retryable: true,
    summary: 'Too many messages wait for their turn in this session. Send it later.',
  },
  too_many_kernels: {
    status: 429,
    retryable: true,
    summary: 'The session has as many interpreters as it may have. Delete a kernel, or wait.',
  },
  too_many_terminals: {
    status: 429,
    retryable: true,
    summary: 'The session has as many terminals as it may have. Close one.',
  },
  too_many_readers: {
    status: 429,
    retryable: true,
    summary: 'Too many streams of this session are open. Close some.',
  },
  range_not_satisfiable: {
    status: 416,
    retryable: false,
    summary: 'The range lies outside of the file.',
  },
  interpreter_missing: {
    status: 422,
    retryable: false,
    summary: 'The language is not available in this session; the message says what to install or choose.',
  },
  terminals_unavailable: {
    status: 422,
    retryable: false,
    summary: 'Sandboxes of this server have no terminals; the message says why.',
  },
  setup_failed: {
    status: 422,
    retryable: false,
    summary:
      'Packages, or install.sh or startup.sh of the agent, failed; the log of the session has the output.',
  },
  internal_error: {
    status: 500,
    retryable: true,
    summary: 'A fault in Ash. The log has it under the request id.',
  },
  checkpoint_failed: {
    status: 500,
    retryable: true,
    summary: 'Files could not be saved to, or restored from, a checkpoint; the message says which and why.',
  },
  checkpoint_damaged: {
    status: 500,
    retryable: false,
    summary: 'Stored files are missing or do not match their hash. Roll back to another checkpoint.',
  },
  files_lost: {
    status: 500,
    retryable: false,
    summary: 'Neither the files of the session nor a checkpoint of them exist on this host.',
  },
  store_unavailable: {
    status: 503,
    retryable: true,
    summary: 'The remote store of checkpoints does not answer or refuses.',
  },
  sandbox_start_failed: { status: 500, retryable: true, summary: 'The sandbox did not start.' },
  sandbox_died: {
    status: 502,
    retryable: true,
    summary: 'The sandbox ended unexpectedly. The session resumes with the next message.',
  },
  oom_killed: {
    status: 502,
    retryable: true,
    summary:
      'The sandbox used more memory than its limit and was killed. The session resumes with the next message.',
  },
  bridge_protocol_error: {
    status: 502,
    retryable: true,
    summary: 'The sandbox sent something that is not the protocol and was stopped.',
  },
  bridge_unresponsive: {
    status: 504,
    retryable: true,
    summary: 'The bridge stopped answering and was stopped.',
  },
  agent_crashed: {
    status: 502,
    retryable: true,
    summary: 'The agent process ended in the middle of a turn. The next message starts it again.',
  },
  agent_failed: { status: 502, retryable: false, summary: 'The agent SDK reported that the turn failed.' },
  model_api_error: {
    status: 502,
    retryable: true,
    summary: 'The model API refused or failed; the message has its answer.',
  },
  turn_timeout: {
    status: 504,
    retryable: true,
    summary: 'The turn ran longer than the time allowed and was stopped.',
  },
  interrupted: {
    status: 503,
    retryable: true,
    summary: 'The server stopped in the middle of the turn; what was durable is in the log.',
  },
  pool_full: {
    status: 503,
    retryable: true,
    summary: 'Every sandbox slot is taken. End a session or raise ASH_MAX_SANDBOXES.',
  },
  provider_unavailable: {
    status: 503,
    retryable: false,
    summary: 'This machine cannot give the isolation configured; the message says what is missing.',
  },
  disk_full: {
    status: 507,
    retryable: false,
    summary: 'There is no room left on the session’s disk, or on the server’s. Delete files first.',
  },
  log_full: {
    status: 507,
    retryable: false,
    summary: 'The log of the session has reached ASH_SESSION_LOG_MB. Go on in a new session.',
  },
  server_stopping: { status: 503, retryable: true, summary: 'The server is shutting down.' },
} as const satisfies Record<string, { status: number; retryable: boolean; summary: string }>

export type ErrorCode = keyof typeof ERRORS

/** One problem with one part of a request; `path` is dotted, as in `files.0.path`. */
export interface ErrorDetail {
  path: string
  message: string
}

/** The one error class: a code of the table, a message with the facts. */
export class AshError extends Error {
  readonly code: ErrorCode
  readonly details: ErrorDetail[] | undefined
  /** Seconds after which a retry makes sense, where that is known. */
  readonly retryAfterSeconds: number | undefined

  constructor(
    code: ErrorCode,
    message: string,
    options: { cause?: unknown; details?: ErrorDetail[]; retryAfterSeconds?: number } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.name = 'AshError'
    this.code = code
    this.details = options.details
    this.retryAfterSeconds = options.retryAfterSeconds
  }

  get statusCode(): number {
    return ERRORS[this.code].status
  }

  get isRetryable(): boolean {
    return ERRORS[this.code].retryable
  }
}

export function isErrorCode(code: unknown): code is ErrorCode {
  return typeof code === 'string' && Object.hasOwn(ERRORS, code)
}

/** True for an AshError, of that code if one is given. */
export function isAshError(error: unknown, code?: ErrorCode): error is AshError {
  return error instanceof AshError && (code === undefined || error.code === code)
}
