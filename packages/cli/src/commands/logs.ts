import { type Command, InvalidArgumentError } from 'commander'
import { serverFiles } from '../config.ts'
import { addCommand, type Context, type Run } from '../context.ts'
import { CliError, EXIT } from '../failure.ts'
import { followLines, tailLines } from '../log-tail.ts'
import type { Output } from '../output.ts'

export function addLogs(program: Command, run: Run): void {
  const examples = [
    'ash logs',
    'ash logs -n 20',
    'ash logs -f',
    'ash logs --json | jq .msg',
    'ash logs -f $id',
  ]
  const summary =
    'Show the log of the server that "ash start" started, or what the sandbox of a session said.'
  addCommand(program, 'logs [session]', summary, examples)
    .option('-n, --lines <count>', 'how many of the last lines', toCount, 100)
    .option('-f, --follow', 'go on as lines are added')
    .action(run(logs))
}

interface LogsOptions {
  lines: number
  follow?: boolean
}

async function logs(context: Context, session: string | undefined, options: LogsOptions): Promise<void> {
  await (session === undefined ? serverLogs(context, options) : sessionLogs(context, session, options))
}

/** Output of code, set-up, refused connections, limits, errors. */
async function sessionLogs(
  { client, output, signal }: Context,
  session: string,
  { lines: tail, follow }: LogsOptions,
): Promise<void> {
  const lines = follow
    ? client.sandboxes.followSessionLogs(session, { tail, signal })
    : await client.sandboxes.sessionLogs(session, { tail, signal })
  for await (const line of lines) {
    if (output.isJson) output.event(line)
    else output.line(line.text)
  }
}

async function serverLogs({ config, output, signal }: Context, options: LogsOptions): Promise<void> {
  const { log } = serverFiles(config.dataDir)
  const { lines, end } = await tailLines(log, options.lines).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error
    throw new CliError(EXIT.notFound, `There is no log at ${log}`, 'Start a server first: ash start')
  })
  for (const line of lines) printLine(output, line)
  if (!options.follow) return
  for await (const line of followLines(log, end, signal)) printLine(output, line)
}

function printLine(output: Output, line: string): void {
  if (output.isJson) output.event(toEntry(line))
  else output.line(line)
}

/** The server logs JSON; what others print there (Node itself, for one) is text. */
function toEntry(line: string): object {
  try {
    const entry: unknown = JSON.parse(line)
    if (typeof entry === 'object' && entry !== null) return entry
  } catch {
    // Not JSON.
  }
  return { line }
}

function toCount(text: string): number {
  const count = Number(text)
  if (Number.isInteger(count) && count >= 0 && count <= 100_000) return count
  throw new InvalidArgumentError('Give a number from 0 to 100000.')
}
