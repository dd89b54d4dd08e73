import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { DEFAULT_LIMITS, type ResourceLimits } from '@ash-ai/sandbox'
import { DEFAULT_RUN_TIMEOUT_MS } from '@ash-ai/shared'
import { EXIT, RunStop } from './exit-codes.ts'
import { FORMATS, type Format, LOG_LEVELS, type LogLevel, oneOf, toTimeoutMs } from './options.ts'

const FILE = '.sandboxrc.json'
/** What the sandbox and its interpreter need themselves, threads included. */
const OWN_PROCESSES = 32
const MIN_MEMORY_MB = 64
const MAX_MEMORY_MB = 1_048_576
const MAX_PROCESSES = 1_000_000

/** What holds where the command line says nothing else. */
export interface Settings {
  timeoutMs: number
  format: Format
  hasColors: boolean
  hasProfile: boolean
  logLevel: LogLevel
  limits: ResourceLimits
  /** What the file asks for and does not get. */
  warnings: string[]
}

/** From the first folder that has the file; defaults where none has it. Throws `RunStop` for what is wrong in it. */
export function readSettings(folders: string[]): Settings {
  for (const folder of folders) {
    const path = join(folder, FILE)
    const text = readIfThere(path)
    if (text !== undefined) return toSettings(path, parseObject(path, text))
  }
  return toSettings(FILE, {})
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined
    throw new RunStop(EXIT.unreadable, `Cannot read ${path}: ${message}`, { cause: error })
  }
}

type Section = Record<string, unknown>

function toSettings(path: string, file: Section): Settings {
  const part = (name: string) =>
    file[name] === undefined ? {} : assertObject(`${path}: ${name}`, file[name])
  const [sandbox, cli, logging] = [part('sandbox'), part('cli'), part('logging')]
  const named = (name: string) => `${path}: ${name}`
  const flag = (name: string, value: unknown, byDefault: boolean) =>
    value === undefined ? byDefault : assertBoolean(named(name), value)
  return {
    timeoutMs:
      cli.default_timeout === undefined
        ? DEFAULT_RUN_TIMEOUT_MS
        : toTimeoutMs(named('cli.default_timeout'), cli.default_timeout),
    format: oneOf(named('cli.default_format'), FORMATS, cli.default_format ?? 'pretty'),
    hasColors: flag('cli.enable_colors', cli.enable_colors, true),
    hasProfile: flag('cli.show_profile', cli.show_profile, false),
    logLevel: oneOf(named('logging.level'), LOG_LEVELS, logging.level ?? 'WARNING'),
    limits: limitsOf(path, sandbox),
    warnings: flag('sandbox.allow_network', sandbox.allow_network, false)
      ? [`${path}: sandbox.allow_network has no effect; a handler run this way never has a network`]
      : [],
  }
}

/** `memory_limit` is in KB. Its other limits are those of a pool, of which there is none here. */
function limitsOf(path: string, { memory_limit, max_user_progress }: Section): ResourceLimits {
  const { memoryMb, processes } = DEFAULT_LIMITS
  return {
    ...DEFAULT_LIMITS,
    memoryMb:
      memory_limit === undefined
        ? memoryMb
        : assertWithin(
            `${path}: sandbox.memory_limit in MB`,
            toMb(memory_limit),
            MIN_MEMORY_MB,
            MAX_MEMORY_MB,
          ),
    processes:
      max_user_progress === undefined
        ? processes
        : OWN_PROCESSES +
          assertWithin(`${path}: sandbox.max_user_progress`, max_user_progress, 1, MAX_PROCESSES),
  }
}

const toMb = (kb: unknown) => (typeof kb === 'number' ? Math.ceil(kb / 1024) : kb)

function assertWithin(name: string, value: unknown, min: number, max: number): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value
  throw new RunStop(EXIT.unreadable, `${name} must be an integer from ${min} to ${max}`)
}

function assertBoolean(name: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value
  throw new RunStop(EXIT.unreadable, `${name} must be true or false`)
}

export function parseObject(name: string, text: string): Section {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    const reason = error instanceof Error ? error.message : ''
    throw new RunStop(EXIT.unreadable, `${name} is not JSON: ${reason}`, { cause: error })
  }
  return assertObject(name, value)
}

function assertObject(name: string, value: unknown): Section {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Section
  throw new RunStop(EXIT.unreadable, `${name} must be a JSON object`)
}
