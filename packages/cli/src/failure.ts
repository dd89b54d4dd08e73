import { AshConnectionError, type AshError, AshReplyError, type ErrorCode, isAshError } from '@ash-ai/sdk'

export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  unreachable: 3,
  unauthorized: 4,
  notFound: 5,
  /** Of `ash run`: the run broke off through no fault of the code. */
  crashed: 70,
  /** Of `ash run`: the code was stopped after its time. */
  timeout: 124,
  interrupted: 130,
} as const

export const EXIT_HELP = `Exit codes:
  0    done
  1    the operation failed
  2    wrong usage
  3    the server cannot be reached
  4    not authorised
  5    no such agent, session, template, checkpoint or file
  130  interrupted
ash run ends as the code does: its own exit code (1 to 125), 1 failed, 124 ran too long,
130 cancelled, 70 crashed.`

/** A failure with what happened and what to do next, a line each. */
export class CliError extends Error {
  override readonly name = 'CliError'
  readonly exitCode: number
  readonly next: string

  constructor(exitCode: number, what: string, next: string) {
    super(what)
    this.exitCode = exitCode
    this.next = next
  }
}

/** The user pressed Ctrl-C; nothing needs saying. */
export class Interrupted extends Error {
  override readonly name = 'Interrupted'
}

const NEXT: Partial<Record<ErrorCode, string>> = {
  unauthorized:
    'Set ASH_API_KEY, or run as the user whose data directory (ASH_DATA_DIR) has the api-key file',
  forbidden: 'Ask whoever runs the server to allow it',
  agent_not_found: 'See which agents there are: ash agent list',
  template_not_found: 'See which templates there are: ash template list',
  session_not_found: 'See which sessions there are: ash session list',
  credential_not_found: 'See which credentials there are: ash credential list',
  execution_not_found: 'See what was run: ash execution list <session>',
  artifact_not_found: 'See what the run left: ash execution show <session> <id>',
  sandbox_not_found: 'See which sandboxes live: ash ps',
  install_in_progress: 'See how it ended: ash packages list <session>. Then try again',
  kernel_not_found: 'See which kernels there are: ash kernel list <session>',
  permission_not_found: 'See what the agent waits for: ash session permissions <id>',
  permission_settled: 'See what the agent waits for: ash session permissions <id>',
  checkpoint_not_found: 'See which checkpoints there are: ash session checkpoints <id>',
  terminal_not_found: 'See which are open: ash terminal <session> --list',
  too_many_terminals: 'Close one: ash terminal <session> --list, then --close <terminal>',
  file_not_found: 'See which files there are: ash files ls <session>',
  file_exists: 'Choose another path, or replace what is there with --force',
  precondition_failed: 'Read it again: ash files stat <session> <path>',
  agent_in_use: 'End its sessions first: ash session list, then ash session end <id>',
  template_in_use: 'End its sessions first: ash session list --template <name>, then ash session end <id>',
  template_conflict: 'Choose another name, or replace one of your own with: ash template create --replace',
  no_agent: 'Run code in it with: ash run --session <id>. To talk, create one: ash session create <agent>',
  interpreter_missing: 'Choose another --language, or a template that has it: ash template list',
  too_many_kernels: 'Delete one: ash kernel list <session>, then ash kernel delete <session> <name>',
  execution_finished: 'See what came of it: ash execution show <session> <id>',
  session_ended: 'Create a new session: ash session create',
  session_gone: 'Create a new session: ash session create',
  session_conflict: 'See how the session is now: ash session show <id>. Then try again',
  session_paused: 'Resume it first: ash session resume <id>',
  no_checkpoint: 'Make one: ash session checkpoint <id>',
  checkpoint_damaged:
    'Go back to another: ash session checkpoints <id>, then ash session rollback <id> <checkpoint>',
  files_lost:
    'Start the server with the data directory or the ASH_SNAPSHOT_URL that has them, or restore its backup',
  store_unavailable:
    'Check ASH_SNAPSHOT_URL, the credentials and the log of the server (ash logs), then try again',
  archive_invalid: 'Make the archive anew, for instance with: tar -czf archive.tar.gz -C <folder> .',
  turn_in_progress: 'Wait for it, or stop it: ash session interrupt <id>',
  pool_full: 'End a session (ash session list), or start the server with a larger ASH_MAX_SANDBOXES',
  provider_unavailable: 'On the machine of the server run: ash doctor',
  model_api_error: "Check the server's ANTHROPIC_API_KEY and its log (ash logs), then send the message again",
  validation_failed: 'Correct what is named and try again; --help shows the usage',
  payload_too_large: 'Leave out large files or send less at once',
}

/** Any error as what happened, what to do next and the exit code. */
export function toFailure(error: unknown, url: string): CliError {
  if (error instanceof CliError) return error
  if (isAshError(error)) return ofServer(error)
  if (error instanceof AshConnectionError) {
    const next =
      error.reason === 'refused'
        ? `Start a server with: ash start. Or name another than ${url} with --url or ASH_SERVER_URL`
        : 'See how the server is with: ash status and ash logs. Then try again'
    return new CliError(EXIT.unreachable, error.message, next)
  }
  if (error instanceof AshReplyError) {
    const isDenied = error.status === 401 || error.status === 403
    const next = `Check that ${url} is an Ash server and that ash has the same version`
    return new CliError(isDenied ? EXIT.unauthorized : EXIT.failed, error.message, next)
  }
  const message = error instanceof Error ? error.message : String(error)
  return new CliError(
    EXIT.failed,
    message,
    'Correct that and try again; ash logs shows the log of the server',
  )
}

function ofServer(error: AshError): CliError {
  const fallback = error.isRetryable ? 'Try again; ' : ''
  const requestId =
    'requestId' in error && error.requestId !== undefined ? ` under request ${error.requestId}` : ''
  const next = NEXT[error.code] ?? `${fallback}the log of the server has more${requestId}: ash logs`
  return new CliError(exitCodeOf(error.statusCode), error.message, next)
}

function exitCodeOf(status: number): number {
  if (status === 401 || status === 403) return EXIT.unauthorized
  return status === 404 ? EXIT.notFound : EXIT.failed
}
