import { parseArgs } from 'node:util'
import { MAX_RUN_TIMEOUT_MS } from '@ash-ai/shared'
import { EXIT, RunStop } from './exit-codes.ts'

export const FORMATS = ['pretty', 'json', 'yaml'] as const
export type Format = (typeof FORMATS)[number]
export const LOG_LEVELS = ['DEBUG', 'INFO', 'WARNING', 'ERROR'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** What the command line says; what it leaves out is up to the settings. */
export interface Options {
  script: string
  event: Source | undefined
  context: Source | undefined
  timeoutMs: number | undefined
  isVerbose: boolean
  isQuiet: boolean
  hasProfile: boolean
  outputFile: string | undefined
  format: Format | undefined
  logLevel: LogLevel | undefined
}

/** JSON on the command line, or a file that holds it; `-` is the standard input. */
export type Source = { text: string } | { file: string }

export const USAGE = `Usage: sandbox-run <handler.py|.js|.mjs> [options]

Calls handler(event, context) of a file once, in a sandbox on this machine. No server is needed.

  -e, --event <json>         the event; default {}
  -f, --event-file <file>    the event from a file; - reads the standard input
  -c, --context <json>       fields of the context, such as {"function_name": "hello"}
      --context-file <file>  the same from a file
  -t, --timeout <seconds>    at most 3600; default 300, and less if the event has __timeout
  -p, --profile              show time, CPU time and peak memory
  -v, --verbose              show details
  -q, --quiet                show the result alone
  -o, --output <file>        write the report to a file as well
      --format <format>      pretty, json or yaml; default pretty
      --log-level <level>    DEBUG, INFO, WARNING or ERROR; default WARNING
      --version              show the version
  -h, --help                 show this

Exit codes: 0 done · 1 the handler, or something else, failed · 2 a file or its JSON cannot be read
3 syntax error, or no handler · 4 time-out · 5 no sandbox · 130 interrupted · 137 out of memory

Settings: .sandboxrc.json in this folder, else in the home folder.

  sandbox-run handler.py --event '{"data": "test"}'
  echo '{"n": 3}' | sandbox-run handler.mjs -f - --format json
`

const FLAGS = {
  event: { type: 'string', short: 'e' },
  'event-file': { type: 'string', short: 'f' },
  context: { type: 'string', short: 'c' },
  'context-file': { type: 'string' },
  timeout: { type: 'string', short: 't' },
  verbose: { type: 'boolean', short: 'v' },
  quiet: { type: 'boolean', short: 'q' },
  profile: { type: 'boolean', short: 'p' },
  output: { type: 'string', short: 'o' },
  format: { type: 'string' },
  'log-level': { type: 'string' },
  version: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const

/** Throws `RunStop` for what it does not know. */
export function parseOptions(args: string[]): Options | 'help' | 'version' {
  const { values, positionals } = parseWords(args)
  if (values.help) return 'help'
  if (values.version) return 'version'
  const [script, ...others] = positionals
  if (script === undefined || others.length > 0) throw misuse('Give one file that holds a handler')
  if (values.verbose && values.quiet) throw misuse('Give --verbose or --quiet, not both')
  return {
    script,
    event: sourceOf('event', values.event, values['event-file']),
    context: sourceOf('context', values.context, values['context-file']),
    timeoutMs: values.timeout === undefined ? undefined : toTimeoutMs('--timeout', Number(values.timeout)),
    isVerbose: values.verbose ?? false,
    isQuiet: values.quiet ?? false,
    hasProfile: values.profile ?? false,
    outputFile: values.output,
    format: values.format === undefined ? undefined : oneOf('--format', FORMATS, values.format),
    logLevel:
      values['log-level'] === undefined
        ? undefined
        : oneOf('--log-level', LOG_LEVELS, values['log-level'].toUpperCase()),
  }
}

/** Seconds as milliseconds. */
export function toTimeoutMs(name: string, seconds: unknown): number {
  const ms = typeof seconds === 'number' ? Math.round(seconds * 1000) : Number.NaN
  if (ms >= 1 && ms <= MAX_RUN_TIMEOUT_MS) return ms
  throw misuse(`${name} must be a number of seconds, at most ${MAX_RUN_TIMEOUT_MS / 1000}`)
}

export function oneOf<const Word extends string>(name: string, words: readonly Word[], given: unknown): Word {
  const word = words.find((known) => known === given)
  if (word === undefined) throw misuse(`${name} must be one of ${words.join(', ')}`)
  return word
}

const misuse = (message: string) => new RunStop(EXIT.failed, message)

function parseWords(args: string[]) {
  try {
    return parseArgs({ args, options: FLAGS, allowPositionals: true })
  } catch (error) {
    throw misuse(error instanceof Error ? error.message : String(error))
  }
}

function sourceOf(name: string, text: string | undefined, file: string | undefined): Source | undefined {
  if (text !== undefined && file !== undefined) throw misuse(`Give --${name} or --${name}-file, not both`)
  return text !== undefined ? { text } : file !== undefined ? { file } : undefined
}
