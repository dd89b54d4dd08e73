import { type Command, InvalidArgumentError } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { CliError, EXIT } from '../failure.ts'

export function addExec(session: Command, run: Run): void {
  addCommand(session, 'exec <id> <command>', "Run a shell command in the session's sandbox.", [
    'ash session exec $id "ls -la"',
    'ash session exec $id "npm test" --timeout 120',
    'ash session exec $id "cat report.csv" > report.csv',
  ])
    .option('--timeout <seconds>', 'kill it after so long', toTimeoutMs)
    .addHelpText('after', '\nExits with 1 if the command fails; its own exit code is in --json.')
    .action(run(exec))
}

async function exec(
  context: Context,
  id: string,
  command: string,
  options: { timeout?: number },
): Promise<void> {
  const { client, output, signal } = context
  const reply = await client.sessions.exec(
    id,
    { command, ...(options.timeout !== undefined && { timeout: options.timeout }) },
    { signal },
  )
  if (reply.exitCode !== 0) context.setExitCode(EXIT.failed)
  if (output.isJson) return output.event(reply)
  output.data(reply.stdout)
  output.errorData(reply.stderr)
  if (reply.truncated) output.note('The output was longer; the rest is lost')
  if (reply.timedOut) {
    throw new CliError(EXIT.failed, 'The command ran too long and was killed', 'Allow more with --timeout')
  }
  if (reply.exitCode !== 0) output.note(`The command ended with ${reply.exitCode ?? reply.signal}`)
}

function toTimeoutMs(text: string): number {
  const seconds = Number(text)
  if (seconds > 0 && seconds <= 3600) return Math.ceil(seconds * 1000)
  throw new InvalidArgumentError('Give seconds, at most 3600.')
}
