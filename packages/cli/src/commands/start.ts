import type { ChildProcess } from 'node:child_process'
import type { Command } from 'commander'
import { serverFiles } from '../config.ts'
import { addCommand, type Context, createClient, type Run } from '../context.ts'
import { CliError, EXIT } from '../failure.ts'
import { tailLines } from '../log-tail.ts'
import { bold, cyan, dim, green } from '../output.ts'
import {
  claimPidFile,
  findServer,
  isAnswering,
  removePidFile,
  spawnServer,
  waitUntil,
} from '../server-process.ts'

/** A first start copies the agent runtime, some 350 MB. */
const READY_TIMEOUT_MS = 120_000
const FAILURE_LOG_LINES = 15

export function addStart(program: Command, run: Run): void {
  const examples = ['ash start', 'ASH_PORT=4200 ASH_DATA_DIR=~/ash-data ash start', 'ash start --json']
  addCommand(program, 'start', 'Start a server on this machine, in the background.', examples).action(
    run(start),
  )
}

async function start(context: Context): Promise<void> {
  const { config } = context
  const pid = await findServer(config.dataDir)
  if (pid !== undefined || (await isAnswering(config, context.signal)))
    return report(context, pid, 'Already running')
  await removePidFile(config.dataDir)
  const logStart = await tailLines(serverFiles(config.dataDir).log, 0).catch(() => ({ end: 0 }))
  const child = await spawnServer(config)
  if (!(await claimPidFile(config.dataDir, child.pid))) {
    child.kill()
    throw new CliError(EXIT.failed, 'Another "ash start" is under way', 'See how far it is with: ash status')
  }
  if (!(await becomesReady(context, child))) throw await startFailure(context, child, logStart.end)
  report(context, child.pid, 'Ash is running')
}

async function becomesReady(context: Context, child: ChildProcess): Promise<boolean> {
  const client = createClient(context.config, context.config.localUrl)
  const isReady = async () =>
    (await client.ready({ timeoutMs: 2000, retries: 0 }).catch(() => ({ ready: false }))).ready
  const hasExited = () => child.exitCode !== null || child.signalCode !== null
  await waitUntil(async () => hasExited() || (await isReady()), {
    timeoutMs: READY_TIMEOUT_MS,
    signal: context.signal,
    onWait: (seconds) => context.output.progress(`Starting the server… ${seconds} s`),
  })
  return !hasExited() && (await isReady())
}

async function startFailure(context: Context, child: ChildProcess, logStart: number): Promise<CliError> {
  const { config, output } = context
  const { log } = serverFiles(config.dataDir)
  const { lines } = await tailLines(log, FAILURE_LOG_LINES, logStart)
  for (const line of lines) output.note(dim(`  ${line}`))
  const code = child.exitCode ?? child.signalCode
  if (code === null) child.kill()
  await removePidFile(config.dataDir)
  const seconds = READY_TIMEOUT_MS / 1000
  const what =
    code === null
      ? `The server was not ready after ${seconds} s and was stopped`
      : `The server ended (${code})`
  return new CliError(
    EXIT.failed,
    what,
    `Mend what its last lines say (all of them: ${log}), then: ash start`,
  )
}

function report({ config, output }: Context, pid: number | undefined, what: string): void {
  const { key, log } = serverFiles(config.dataDir)
  const keyText = config.serverEnv.ASH_API_KEY === undefined ? key : 'the one in ASH_API_KEY'
  output.result(
    {
      running: true,
      url: config.localUrl,
      pid: pid ?? null,
      dataDir: config.dataDir,
      keyFile: key,
      logFile: log,
    },
    [green('✓'), ` ${what} at `, bold(config.localUrl)],
    [dim('  API key  '), keyText],
    [dim('  Log      '), log],
    [''],
    ['Next:'],
    [cyan('  ash deploy examples/hosted-agent')],
    [cyan('  ash chat hosted-agent "Hello"')],
    [cyan('  ash stop')],
  )
}
