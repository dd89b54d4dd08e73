import { type Command, InvalidArgumentError } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { CliError, EXIT } from '../failure.ts'

const SUMMARY = "Run a shell command in the session's sandbox."
const HELP = `
Several words are one command and its arguments, each as it is; options among them need -- before.
Exits with 1 if the command fails; its own exit code is in --json.`

/** `ash exec` and, the same, `ash session exec`. */
export function addExec(parent: Command, run: Run): void {
  const name = parent.parent === null ? 'ash exec' : `ash ${parent.name()} exec`
  addCommand(parent, 'exec <id> <command...>', SUMMARY, [
    `${name} $id "ls -la | head"`,
    `${name} $id --timeout 120 -- npm test --silent`,
    `${name} $id "cat report.csv" > report.csv`,
  ])
    .option('--timeout <seconds>', 'kill it after so long', toTimeoutMs)
    .addHelpText('after', HELP)
    .action(run(exec))
}

async function exec(
  context: Context,
  id: string,
  words: string[],
  options: { timeout?: number },
): Promise<void> {
  const { client, output, signal } = context
  const reply = await client.sessions.exec(
    id,
    { command: toCommand(words), ...(options.timeout !== undefined && { timeout: options.timeout }) },
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

/** One word is a line for the shell; of several each stays one word, whatever is in it. */
function toCommand(words: string[]): string {
  return words.length === 1 ? words.join('') : words.map(quote).join(' ')
}

const quote = (word: string) => (/^[\w./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)

function toTimeoutMs(text: string): number {
  const seconds = Number(text)
  if (seconds > 0 && seconds <= 3600) return Math.ceil(seconds * 1000)
  throw new InvalidArgumentError('Give seconds, at most 3600.')
}
