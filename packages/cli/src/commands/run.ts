import type { ExecutionStream, Language, Packages, SessionMode, SessionRun } from '@ash-ai/sdk'
import type { Command } from 'commander'
import { collectPackages, toLanguage, toMode } from '../code-options.ts'
import { addCommand, type Context, type Run } from '../context.ts'
import { toRunTimeout } from '../durations.ts'
import { collect, type EnvOptions, readEnvOptions } from '../env-options.ts'
import { CliError, EXIT } from '../failure.ts'
import { cyan, dim } from '../output.ts'
import { whileWaiting } from '../progress.ts'
import { showRun } from '../run-code.ts'
import { readEvent, readRunSource } from '../run-source.ts'

type RunOptions = EnvOptions & {
  code?: string
  template?: string
  language?: Language
  mode?: SessionMode
  session?: string
  kernel?: string
  handler?: true
  event?: string
  eventFile?: string
  timeout?: number
  stream?: boolean
  artifacts?: string
  package?: Packages
}

const HELP = `
The code runs in a sandbox without a network that is gone afterwards; with --mode persistent the session, its
files and the variables of its interpreter stay. What the code writes goes to stdout and stderr, then comes its
result: the value of the last expression, or what the handler returned.

Exits with the code's own exit code (1 to 125) where it has one, 0 completed, 1 failed, 124 ran too long,
130 cancelled, 70 crashed. Ctrl-C cancels the code.`

export function addRun(program: Command, run: Run): void {
  addCommand(program, 'run [file]', 'Run code in a sandbox.', [
    'ash run script.py',
    'ash run -c "6 * 7"',
    'ash run handler.mjs --event \'{"name": "Ada"}\'',
    'cat job.sh | ash run - --language shell --timeout 5m',
    'ash run plot.py --package pip:matplotlib --artifacts out/',
    'ash run -c "x = 1" --mode persistent               # prints the id of the session',
    'ash run -c "x + 1" --session $id',
    'ash run script.py --json | jq .execution.result',
  ])
    .option('-c, --code <code>', 'the code itself, instead of a file')
    .option(
      '--language <language>',
      'python, javascript or shell; default by the name of the file',
      toLanguage,
    )
    .option('--template <name>', 'the environment; default that of the language')
    .option('--mode <mode>', 'ephemeral (default) or persistent: the session stays', toMode)
    .option('--session <id>', 'run it in this session')
    .option('--kernel <name>', 'in this interpreter of the session; default default')
    .option('--handler', 'call handler(event) or handler(event, context) that the code defines')
    .option('--event <json>', 'its event; implies --handler')
    .option('--event-file <file>', 'its event from a file; implies --handler')
    .option('-e, --env <NAME=value>', 'a variable for the run; repeatable', collect)
    .option('--env-file <file>', 'variables from a file; repeatable', collect)
    .option('--timeout <time>', 'stop it after so long: 500ms, 30s, 5m; default 300s', toRunTimeout)
    .option('--stream', 'show output as it comes, the default; with --json every event, one a line')
    .option('--no-stream', 'show output at the end')
    .option('--artifacts <dir>', 'save files and images that it made there')
    .option(
      '--package <pip:name>',
      'install this before: pip:<name> or npm:<name>; repeatable',
      collectPackages,
    )
    .addHelpText('after', HELP)
    .action(run(runFile))
}

async function runFile(context: Context, file: string | undefined, options: RunOptions): Promise<void> {
  checkOptions(options)
  const request = await toRequest(context, file, options)
  const sessionId = await openSession(context, request.language, options)
  const isLive = options.stream ?? !context.output.isJson
  await showRun(context, start(context, request, sessionId, options), {
    isLive,
    artifacts: options.artifacts,
  })
  if (sessionId !== undefined && options.session === undefined && !context.output.isJson) {
    context.output.note(dim('go on with '), cyan(`ash run --session ${sessionId} …`))
    context.output.note(dim('end it with '), cyan(`ash session end ${sessionId}`))
  }
}

function checkOptions({ session, kernel, mode, template, package: packages }: RunOptions): void {
  const isNew = template ?? packages ?? mode
  if (session !== undefined && isNew !== undefined)
    throw usage(
      '--template, --package and --mode are for a new session',
      'Use --session without them, or leave it out',
    )
  if (kernel !== undefined && session === undefined && mode !== 'persistent')
    throw usage('--kernel is for a session that stays', 'Add --session <id> or --mode persistent')
}

async function toRequest(
  { config }: Context,
  file: string | undefined,
  options: RunOptions,
): Promise<SessionRun> {
  const { text, language } = await readRunSource(file, options.code, options.language)
  const event = await readEvent(options.event, options.eventFile)
  const env = await readEnvOptions(config, options)
  return {
    ...(options.handler || event !== undefined ? { handler: text } : { code: text }),
    ...(language !== undefined && { language }),
    ...(event !== undefined && { event }),
    ...(options.timeout !== undefined && { timeout: options.timeout }),
    ...(options.kernel !== undefined && { kernel: options.kernel }),
    ...(Object.keys(env).length > 0 && { env }),
  }
}

const TEMPLATES: Record<Language, string> = { python: 'python', javascript: 'node', shell: 'shell' }

/** The session to run in; undefined where one exists for this run only. */
async function openSession(
  { client, output, signal }: Context,
  language: Language = 'python',
  options: RunOptions,
): Promise<string | undefined> {
  if (options.session !== undefined || options.mode !== 'persistent') return options.session
  const template = options.template ?? TEMPLATES[language]
  const creating = client.sessions.create(
    { template, mode: options.mode, ...packagesOf(options) },
    { signal },
  )
  const { id } = await whileWaiting(output, 'Preparing', creating)
  if (!output.isJson) output.note(dim(`session ${id}`))
  return id
}

function start(
  { client, signal }: Context,
  request: SessionRun,
  sessionId: string | undefined,
  options: RunOptions,
): ExecutionStream {
  if (sessionId !== undefined) return client.sessions.executeStream(sessionId, request, { signal })
  const { template } = options
  const once = { ...request, ...(template !== undefined && { template }), ...packagesOf(options) }
  return client.executeStream(once, { signal })
}

const packagesOf = ({ package: packages }: RunOptions) => (packages === undefined ? {} : { packages })

const usage = (what: string, next: string) => new CliError(EXIT.usage, what, next)
