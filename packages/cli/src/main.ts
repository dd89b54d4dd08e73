import { readFileSync } from 'node:fs'
import { Command, CommanderError } from 'commander'
import { addAgent } from './commands/agent.ts'
import { addChat } from './commands/chat.ts'
import { addCredential } from './commands/credential.ts'
import { addDeploy } from './commands/deploy.ts'
import { addDoctor } from './commands/doctor.ts'
import { addExecution } from './commands/execution.ts'
import { addFiles } from './commands/files.ts'
import { addGarbage } from './commands/garbage.ts'
import { addHealth } from './commands/health.ts'
import { addKernel } from './commands/kernel.ts'
import { addLogs } from './commands/logs.ts'
import { addPackages } from './commands/packages.ts'
import { addPorts } from './commands/ports.ts'
import { addPs } from './commands/ps.ts'
import { addRegistry } from './commands/registry.ts'
import { addRun } from './commands/run.ts'
import { addSession } from './commands/session.ts'
import { addExec } from './commands/session-exec.ts'
import { addStart } from './commands/start.ts'
import { addStatus } from './commands/status.ts'
import { addStop } from './commands/stop.ts'
import { addTemplate } from './commands/template.ts'
import { addTerminal } from './commands/terminal.ts'
import { addTop } from './commands/top.ts'
import { readConfig } from './config.ts'
import { type Context, createClient, type Run } from './context.ts'
import { EXIT, EXIT_HELP, Interrupted, toFailure } from './failure.ts'
import { Interrupts } from './interrupts.ts'
import { Output, writeErr, writeOut } from './output.ts'

const COMMANDS = [
  addStart,
  addStop,
  addStatus,
  addDeploy,
  addAgent,
  addSession,
  addFiles,
  addCredential,
  addChat,
  addRun,
  addExec,
  addTerminal,
  addTemplate,
  addRegistry,
  addExecution,
  addKernel,
  addPackages,
  addPs,
  addTop,
  addPorts,
  addHealth,
  addLogs,
  addGarbage,
  addDoctor,
]

const HELP = `
Examples:
  $ ash start                            start a server on this machine
  $ ash deploy examples/hosted-agent     deploy a folder with a CLAUDE.md
  $ ash chat hosted-agent "Hello"        talk to it
  $ ash run script.py                    run code in a sandbox
  $ ash run -c "6 * 7"

${EXIT_HELP}

Environment:
  ASH_SERVER_URL  address of the server      ASH_API_KEY   key; default the api-key file
  ASH_DATA_DIR    data of a local server     NO_COLOR      no colours`

/** Runs one command line and returns its exit code. */
export async function main(args: string[]): Promise<number> {
  const interrupts = new Interrupts()
  interrupts.listen()
  endWithReader()
  let exitCode: number = EXIT.ok
  const setExitCode = (code: number) => {
    exitCode = code
  }
  const program = createProgram((action) => async (...given) => {
    const context = createContext(program.opts(), interrupts, setExitCode)
    try {
      await action(context, ...given)
    } catch (error) {
      exitCode = interrupts.signal.aborted
        ? EXIT.interrupted
        : report(error, context.output, context.config.url)
    }
  })
  try {
    await program.parseAsync(args.length === 0 ? ['--help'] : args, { from: 'user' })
    return exitCode
  } catch (error) {
    // Commander has printed help, version or the usage error.
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage
    return report(error, new Output({ isJson: false, hasColor: false }), '')
  }
}

export function createProgram(run: Run): Command {
  const program = new Command('ash')
    .description('Deploys agent folders and talks to them; runs code in sandboxes.')
    .version(readVersion())
    .option('--url <url>', 'address of the server (ASH_SERVER_URL)')
    .option('--json', 'JSON on stdout: one document, or one a line for streams')
    .addHelpText('after', HELP)
    .exitOverride()
    .configureOutput({ writeOut, writeErr })
    .configureHelp({ showGlobalOptions: true })
    .showHelpAfterError('  next: add --help to see the usage and examples')
  for (const add of COMMANDS) add(program, run)
  return program
}

function createContext(
  options: { url?: string; json?: boolean },
  interrupts: Interrupts,
  setExitCode: Context['setExitCode'],
): Context {
  const config = readConfig(options.url)
  const output = new Output({ isJson: options.json === true, hasColor: config.hasColor })
  return {
    config,
    output,
    client: createClient(config),
    interrupts,
    signal: interrupts.signal,
    setExitCode,
  }
}

function report(error: unknown, output: Output, url: string): number {
  if (error instanceof Interrupted) return EXIT.interrupted
  const failure = toFailure(error, url)
  output.failure(failure.message, failure.next)
  return failure.exitCode
}

/** `ash logs | head`: the reader has what it wanted. */
function endWithReader(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
    process.exit(EXIT.ok)
  })
}

function readVersion(): string {
  const manifest: { version: string } = JSON.parse(
    readFileSync(new URL('../package.json', import.meta.url), 'utf8'),
  )
  return manifest.version
}
