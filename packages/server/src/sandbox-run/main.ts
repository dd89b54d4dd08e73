import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { basename, extname, join, resolve } from 'node:path'
import { isAshError } from '@ash-ai/shared'
import { handlerContext, planRun } from '../executions/run-plan.ts'
import { defaultDataDir, MAX_UID, SANDBOX_UIDS } from '../host-defaults.ts'
import { EXIT, exitCodeOf, RunStop } from './exit-codes.ts'
import { type Inputs, readInputs } from './inputs.ts'
import { isJson } from './json-text.ts'
import { LOG_LEVELS, type LogLevel, type Options, parseOptions, USAGE } from './options.ts'
import { describeError, formatReport, type ReportOptions } from './report.ts'
import { type HandlerReport, type HandlerRun, type RunHost, runHandler } from './run-handler.ts'
import { readSettings, type Settings } from './settings.ts'

type Log = (level: LogLevel, text: string) => void

/** `sandbox-run`: calls a handler once, in a sandbox on this machine, and returns the exit code. */
export async function main(args: string[]): Promise<number> {
  endWithReader()
  try {
    const options = parseOptions(args)
    if (options === 'help') return print(USAGE)
    if (options === 'version') return print(`sandbox-run ${readVersion()}\n`)
    return await run(options)
  } catch (error) {
    const stop = toStop(error)
    complain(stop.message)
    return stop.exitCode
  }
}

async function run(options: Options): Promise<number> {
  const settings = readSettings([process.cwd(), homedir()])
  const inputs = await readInputs(options)
  const log = logger(options.logLevel ?? settings.logLevel)
  for (const warning of settings.warnings) log('WARNING', warning)
  const interrupts = listen()
  try {
    const plan = planHandler(options, settings, inputs)
    log('DEBUG', `${inputs.language}, at most ${plan.request.timeoutMs} ms and ${plan.limits.memoryMb} MB`)
    const report = checked(await runHandler(readHost(process.env), plan, interrupts.signal))
    log('INFO', `${report.outcome.status} after ${Math.round(report.outcome.metrics.wallMs)} ms`)
    const exitCode = interrupts.exitCode() ?? exitCodeOf(report.outcome)
    await tell(report, exitCode, options, settings)
    return exitCode
  } catch (error) {
    const exitCode = interrupts.exitCode()
    if (exitCode === undefined) throw error
    return exitCode
  } finally {
    interrupts.close()
  }
}

function planHandler(options: Options, settings: Settings, inputs: Inputs): HandlerRun {
  const { language, code, event, context } = inputs
  const { timeoutMs: timeout } = options
  const { what, input } = planRun(
    { handler: code, language, event, ...(timeout !== undefined && { timeout }) },
    { mode: 'ephemeral', languages: [language], timeoutMs: settings.timeoutMs },
  )
  const named = { function_name: basename(options.script, extname(options.script)), ...context }
  const id = readUuid()
  return {
    language,
    limits: settings.limits,
    request: {
      kind: 'handler',
      code,
      event: input.event ?? '{}',
      timeoutMs: what.timeout_ms,
      context: handlerContext({ id, session_id: id }, named, settings.limits.memoryMb),
    },
  }
}

/** From the kernel: to load Node's own takes as long as a small handler does. */
const readUuid = () => readFileSync('/proc/sys/kernel/random/uuid', 'utf8').trim()

/** What the handler says it returned may be no JSON: something inside wrote it by itself. */
function checked(report: HandlerReport): HandlerReport {
  const { result, ...outcome } = report.outcome
  if (result === undefined || isJson(result)) return report
  const error = { name: 'InvalidResult', message: 'What the handler returned is not JSON' }
  return { ...report, outcome: { ...outcome, status: 'failed', error } }
}

async function tell(report: HandlerReport, exitCode: number, options: Options, settings: Settings) {
  const isTerminal = process.stdout.isTTY === true
  const how: ReportOptions = {
    format: options.format ?? settings.format,
    exitCode,
    isQuiet: options.isQuiet,
    isVerbose: options.isVerbose,
    hasProfile: options.hasProfile || settings.hasProfile,
    hasColors: isTerminal && settings.hasColors && !process.env.NO_COLOR,
    isTerminal,
    timestamp: new Date().toISOString(),
  }
  print(await formatReport(report, how))
  const error = describeError(report, exitCode)
  if (options.isQuiet && error !== undefined) complain(error)
  if (options.outputFile === undefined) return
  const text = await formatReport(report, { ...how, hasColors: false, isTerminal: false })
  await writeFile(options.outputFile, text)
}

/** The only look at the environment: the same variables as a server's. */
function readHost(env: NodeJS.ProcessEnv): RunHost {
  const isRoot = process.getuid?.() === 0
  const dataDir =
    env.ASH_DATA_DIR || defaultDataDir(env.XDG_DATA_HOME || undefined, { isRoot, homeDir: homedir() })
  return {
    runtimeDir: resolve(env.ASH_RUNTIME_DIR || join(dataDir, 'runtime')),
    bridgeEntry: env.ASH_BRIDGE_ENTRY ? resolve(env.ASH_BRIDGE_ENTRY) : undefined,
    owner: isRoot ? ownUser(env) : undefined,
  }
}

/** Above the users of a server's sandboxes, by process id: no two runs have the same at a time. */
function ownUser(env: NodeJS.ProcessEnv): RunHost['owner'] {
  const base = Number(env.ASH_SANDBOX_UID_BASE || SANDBOX_UIDS.base)
  const count = Number(env.ASH_SANDBOX_UID_COUNT || SANDBOX_UIDS.count)
  const uid = base + count + process.pid
  if (Number.isInteger(uid) && base > 0 && count > 0 && uid <= MAX_UID) return { uid, gid: uid }
  throw new RunStop(
    EXIT.noSandbox,
    'ASH_SANDBOX_UID_BASE and ASH_SANDBOX_UID_COUNT leave no user for the sandbox above theirs',
  )
}

const SIGNALS = { SIGINT: EXIT.interrupted, SIGTERM: 143, SIGHUP: 129 } as const

/** A terminal and whoever started this may both send what was one key. */
const SAME_SIGNAL_MS = 500

/** The first signal ends the handler, a later one everything at once: the sandbox does not outlive this process. */
function listen() {
  const controller = new AbortController()
  let exitCode: number | undefined
  let firstMs = 0
  const handle = (signal: NodeJS.Signals) => {
    if (exitCode === undefined) firstMs = performance.now()
    else if (performance.now() - firstMs > SAME_SIGNAL_MS) process.exit(exitCode)
    exitCode ??= SIGNALS[signal as keyof typeof SIGNALS]
    controller.abort()
  }
  const names = Object.keys(SIGNALS) as (keyof typeof SIGNALS)[]
  for (const name of names) process.on(name, handle)
  return {
    signal: controller.signal,
    exitCode: () => exitCode,
    close: () => {
      for (const name of names) process.off(name, handle)
    },
  }
}

/** `sandbox-run … | head`: the reader has what it wanted. */
function endWithReader(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
  })
}

function toStop(error: unknown): RunStop {
  if (error instanceof RunStop) return error
  // Of the plan: an event that is too large, a handler that is none.
  if (isAshError(error)) return new RunStop(EXIT.unreadable, error.message, { cause: error })
  return new RunStop(EXIT.failed, error instanceof Error ? error.message : String(error), { cause: error })
}

function logger(least: LogLevel): Log {
  return (level, text) => {
    if (LOG_LEVELS.indexOf(level) >= LOG_LEVELS.indexOf(least)) process.stderr.write(`${level} ${text}\n`)
  }
}

function print(text: string): number {
  process.stdout.write(text)
  return EXIT.ok
}

function complain(text: string): void {
  process.stderr.write(`sandbox-run: ${text}\n`)
}

function readVersion(): string {
  const manifest = new URL('../../package.json', import.meta.url)
  return (JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }).version
}
