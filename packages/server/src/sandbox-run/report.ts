import type { RunError } from '@ash-ai/shared'
import { indentJson, parseExact } from './json-text.ts'
import type { Format } from './options.ts'
import type { HandlerReport } from './run-handler.ts'

const MB = 1024 * 1024

export interface ReportOptions {
  format: Format
  exitCode: number
  isQuiet: boolean
  isVerbose: boolean
  hasProfile: boolean
  hasColors: boolean
  /** Control characters are shown instead of sent: what comes from inside is not to act on a terminal. */
  isTerminal: boolean
  timestamp: string
}

/** What a run is told as; it ends with a line break unless there is nothing to tell. */
export async function formatReport(report: HandlerReport, options: ReportOptions): Promise<string> {
  if (options.isQuiet) return formatResult(report, options)
  if (options.format === 'pretty') return formatSections(report, options)
  const json = toJson(report, options)
  return options.format === 'json' ? `${safeJson(indentJson(json), options)}\n` : toYaml(json, options)
}

/** In whatever format, the error that quiet output has no room for. */
export function describeError({ outcome }: HandlerReport, exitCode: number): string | undefined {
  const { error, status } = outcome
  if (error !== undefined) return `${error.name}: ${error.message}`
  if (status === 'timeout')
    return `The handler was killed after ${(outcome.metrics.wallMs / 1000).toFixed(1)} s`
  return exitCode === 0 ? undefined : `The handler ended as ${status}`
}

async function formatResult({ outcome }: HandlerReport, options: ReportOptions): Promise<string> {
  const { result } = outcome
  if (result === undefined) return ''
  if (options.format === 'yaml') return toYaml(result, options)
  return `${safeJson(options.format === 'json' ? result : indentJson(result), options)}\n`
}

/** By hand around the result, which stays as the handler's language wrote it. */
function toJson({ outcome, stdout, stderr }: HandlerReport, options: ReportOptions): string {
  const { error, result, metrics, truncated } = outcome
  const head = JSON.stringify({ exit_code: options.exitCode, stdout, stderr })
  const tail = JSON.stringify({
    ...(error && { error: errorFields(error) }),
    ...(truncated && { truncated }),
    metrics: {
      duration_ms: round(metrics.wallMs),
      cpu_time_ms: round(metrics.cpuMs),
      memory_peak_mb: round(metrics.peakMemoryBytes / MB),
    },
    ...(options.isVerbose && { timestamp: options.timestamp }),
  })
  return `${head.slice(0, -1)},"result":${result ?? 'null'},${tail.slice(1)}`
}

const errorFields = ({ name, message, traceback }: RunError) => ({
  name,
  message,
  ...(traceback !== undefined && { traceback }),
})

async function toYaml(json: string, options: ReportOptions): Promise<string> {
  // Only who asks for it waits for it.
  const { stringify } = await import('yaml')
  return safeText(stringify(parseExact(json), { aliasDuplicateObjects: false }), options)
}

function formatSections(report: HandlerReport, options: ReportOptions): string {
  const { outcome, stdout, stderr } = report
  const { result, truncated } = outcome
  const error = errorText(report, options)
  const sections: [string, string | undefined][] = [
    [truncated ? 'STDOUT (cut)' : 'STDOUT', stdout || undefined],
    [truncated ? 'STDERR (cut)' : 'STDERR', stderr || undefined],
    ['ERROR', error],
    ['RESULT', result === undefined ? undefined : indentJson(result)],
    ['METRICS', options.hasProfile ? lines(metricsOf(report)) : undefined],
    ['DETAILS', options.isVerbose ? lines(detailsOf(report, options)) : undefined],
  ]
  return sections
    .flatMap(([name, text]) =>
      text === undefined ? [] : [`${heading(name, options)}\n${safeText(text.trimEnd(), options)}\n`],
    )
    .join('\n')
}

function errorText(report: HandlerReport, { exitCode }: ReportOptions): string | undefined {
  const { error } = report.outcome
  return error?.traceback ?? describeError(report, exitCode)
}

function metricsOf({ outcome: { metrics } }: HandlerReport): [string, string][] {
  return [
    ['duration', `${round(metrics.wallMs)} ms`],
    ['cpu time', `${round(metrics.cpuMs)} ms`],
    ['peak memory', `${round(metrics.peakMemoryBytes / MB)} MB`],
  ]
}

function detailsOf({ outcome, limits }: HandlerReport, options: ReportOptions): [string, string][] {
  const { result } = outcome
  return [
    ['timestamp', options.timestamp],
    ['exit code', String(options.exitCode)],
    ['result type', result === undefined ? 'none' : typeOf(result)],
    ['result length', String(result?.length ?? 0)],
    ['isolation', `bwrap, limits by ${limits.backend}`],
  ]
}

/** By its first character: that is all of JSON's types. */
function typeOf(json: string): string {
  const first = json.trimStart().charAt(0)
  const types: Record<string, string> = {
    '{': 'object',
    '[': 'array',
    '"': 'string',
    t: 'boolean',
    f: 'boolean',
    n: 'null',
  }
  return types[first] ?? 'number'
}

const lines = (fields: [string, string][]) =>
  fields.map(([name, value]) => `${name.padEnd(14)}${value}`).join('\n')

const heading = (name: string, { hasColors }: ReportOptions) => (hasColors ? `\x1b[1m${name}\x1b[0m` : name)

/** To a tenth. */
const round = (value: number) => Math.round(value * 10) / 10

const UNSAFE = /(?![\n\t])[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu

function safeText(text: string, { isTerminal }: ReportOptions): string {
  if (!isTerminal) return text
  return text.replaceAll('\r\n', '\n').replace(UNSAFE, escapeChar)
}

/** Still the same JSON. */
const safeJson = (json: string, { isTerminal }: ReportOptions) =>
  isTerminal ? json.replace(UNSAFE, escapeChar) : json

const escapeChar = (char: string) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`
