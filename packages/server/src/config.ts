import { homedir } from 'node:os'
import { join, resolve } from 'node:path'
import { DEFAULT_LIMITS } from '@ash-ai/sandbox'
import { DEFAULT_HOST, DEFAULT_PORT, type Limits } from '@ash-ai/shared'
import { z } from 'zod'
import { type DialectConfig, dialectConfig, ProviderPairs } from './dialects/dialect-config.ts'
import { defaultDataDir, type HostFacts, MAX_UID, SANDBOX_UIDS } from './host-defaults.ts'
import { isLoopback } from './http/keys-off.ts'

/** Everything the server lets its environment decide. Read once, at start. */
export interface Config {
  readonly port: number
  readonly host: string
  /** `off`: programs of this machine need no key. */
  readonly keys: 'on' | 'off'
  /** Where the API is served in other vocabularies; undefined: nowhere. */
  readonly dialects?: DialectConfig
  /** Where previews are served; undefined: nowhere. */
  readonly previews?: PreviewConfig
  readonly dataDir: string
  readonly apiKey?: string
  readonly databaseUrl?: string
  readonly sqliteSync: 'normal' | 'full'
  readonly provider: 'bwrap' | 'process'
  readonly maxSandboxes: number
  /** For a sandbox that asks for nothing else, and the most it can ask for. */
  readonly limits: Limits
  /** Host uids that sandboxes run under; each session has one of its own. */
  readonly sandboxUids: { readonly base: number; readonly count: number }
  readonly runtimeDir: string
  readonly bridgeEntry?: string
  readonly allowPathDeploy: boolean
  readonly logLevel: (typeof LOG_LEVELS)[number]
  readonly turnTimeoutMs: number
  readonly permissionTimeoutMs: number
  readonly maxLogChars: number
  readonly debugTiming: boolean
  readonly modelIdleTimeoutMs: number
  readonly shutdownTimeoutMs: number
  /** A session that does nothing for this long keeps no process. */
  readonly idleTimeoutMs: number
  /** The same for a session that only runs code, and after how long it gets another sandbox. */
  readonly codeIdleTimeoutMs: number
  readonly codeLifetimeMs: number
  /** Sandboxes kept ready for each agent that says nothing itself. */
  readonly warmSpares: number
  /** What is kept of a session that says nothing itself. */
  readonly retention: { readonly checkpoints: number; readonly days?: number; readonly sessionDays: number }
  /** How long files that executions left can be downloaded. */
  readonly artifactDays: number
  /** How many bytes of them a session keeps. */
  readonly maxArtifactBytes: number
  readonly gcIntervalMs: number
  /** Where checkpoints are kept beside this host. */
  readonly snapshotStore?: SnapshotStoreConfig
  /** Environments, agents, tools and prompts as files, applied at start. */
  readonly registryDir?: string
  /** For tests: the server kills itself at this point. */
  readonly faultPoint?: string
  readonly credentialKey?: string
  /** CLAUDE_CODE_MAX_RETRIES, handed into sandboxes. */
  readonly claudeMaxRetries?: number
  /** Prices of models beside those Ash knows, USD per million tokens. */
  readonly modelPrices?: Record<string, unknown>
  /** Where the packages of agents come from, where not from the places that pip and npm know. */
  readonly packageIndexes: { readonly pip?: string; readonly npm?: string }
  readonly model: ModelConfig
}

interface PreviewConfig {
  /** 0: any that is free. */
  readonly port: number
  /** Whether this port was asked for, or another will do. */
  readonly isFixed: boolean
  /** What clients reach it by, where that is not `http://localhost` and its port. */
  readonly url?: string
}

interface SnapshotStoreConfig {
  readonly bucket: string
  /** Ends with a slash, or is empty. */
  readonly prefix: string
  readonly endpoint?: string
  readonly region?: string
  readonly pathStyle: boolean
}

type ModelConfig =
  | {
      readonly kind: 'anthropic'
      readonly baseUrl: string
      readonly apiKey?: string
      readonly authToken?: string
      readonly headers: Readonly<Record<string, string>>
    }
  | { readonly kind: 'offline' }

/** Throws an Error with one line per variable that is wrong: its name and what is allowed, never its value. */
export function readConfig(env: NodeJS.ProcessEnv, host: HostFacts = thisHost()): Config {
  const result = Variables.safeParse(withoutEmpty(env))
  if (!result.success) throw new Error(describeFaults(result.error))
  return deepFreeze(toConfig(result.data, host))
}

const thisHost = (): HostFacts => ({ isRoot: process.getuid?.() === 0, homeDir: homedir() })

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const
const MAX_TIMEOUT_MS = 2 ** 31 - 1 // The longest a timer can wait.

function integer(min: number, max: number) {
  const error = `must be an integer from ${min} to ${max}`
  return z
    .string()
    .regex(/^\d{1,15}$/, error)
    .transform(Number)
    .refine((value) => value >= min && value <= max, error)
}

const oneOf = <const Words extends readonly [string, ...string[]]>(words: Words) =>
  z.enum(words, { error: `must be one of ${words.join(', ')}` })

const flag = oneOf(['true', 'false', '1', '0']).transform((value) => value === 'true' || value === '1')

function url(...protocols: string[]) {
  const error = `must be a URL that starts with ${protocols.map((protocol) => `${protocol}//`).join(' or ')}`
  return z.string().refine((value) => protocols.includes(URL.parse(value)?.protocol ?? ''), error)
}

/** It becomes a word of a command inside sandboxes, where everybody can read it. */
function indexUrl() {
  const isPlain = (value: string) =>
    !/['\s]/.test(value) && !URL.parse(value)?.username && !URL.parse(value)?.password
  return url('http:', 'https:').refine(isPlain, 'must hold no user, password, blank or quote')
}

const headerSafe = z.string().regex(/^[\x21-\x7e]+$/, 'must be printable ASCII without spaces')

/** Lines of `Name: value`, as Claude Code reads them. */
const headerLines = z.string().transform((text, context) => {
  const headers: Record<string, string> = {}
  for (const line of text.split(/\r?\n/).filter((part) => part.trim() !== '')) {
    const [, name, value] = /^\s*([A-Za-z0-9!#$%&'*+.^_`|~-]+)\s*:\s*([\t\x20-\x7e]*?)\s*$/.exec(line) ?? []
    if (name === undefined || value === undefined) {
      context.addIssue({ code: 'custom', message: 'must be lines of "Name: value"' })
      return z.NEVER
    }
    headers[name.toLowerCase()] = value
  }
  return headers
})

const jsonObject = z.string().transform((text, context) => {
  const value = z.record(z.string(), z.unknown()).safeParse(parseJson(text))
  if (value.success) return value.data
  context.addIssue({ code: 'custom', message: 'must be a JSON object' })
  return z.NEVER
})

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const Variables = z.object({
  ASH_PORT: integer(0, 65_535).default(DEFAULT_PORT),
  ASH_HOST: z.string().default(DEFAULT_HOST),
  ASH_KEYS: oneOf(['on', 'off']).default('on'),
  ASH_DIALECT_PORT: integer(0, 65_535).optional(),
  ASH_DIALECT_KEYS: oneOf(['on', 'off']).optional(),
  ASH_DIALECT_PROVIDER_MAP: ProviderPairs.default({}),
  ASH_PREVIEW_PORT: z.union([oneOf(['off']), integer(0, 65_535)], 'must be off or a port').optional(),
  ASH_PREVIEW_HOST: z
    .string()
    .regex(/^(https?:\/\/)?[A-Za-z0-9.-]{1,200}(:\d{1,5})?$/, 'must be a host such as preview.example.com')
    .optional(),
  ASH_DATA_DIR: z.string().optional(),
  ASH_API_KEY: headerSafe.optional(),
  ASH_DATABASE_URL: url('postgres:', 'postgresql:').optional(),
  ASH_SQLITE_SYNC: oneOf(['normal', 'full']).default('normal'),
  ASH_PROVIDER: oneOf(['bwrap', 'process']).default('bwrap'),
  ASH_MAX_SANDBOXES: integer(1, 100_000).default(100),
  ASH_SANDBOX_MEMORY_MB: integer(128, 1_048_576).default(DEFAULT_LIMITS.memoryMb),
  ASH_SANDBOX_CPUS: integer(1, 1024).default(DEFAULT_LIMITS.cpus),
  ASH_SANDBOX_PROCESSES: integer(32, 1_000_000).default(DEFAULT_LIMITS.processes),
  ASH_SANDBOX_OPEN_FILES: integer(64, 1_000_000).default(DEFAULT_LIMITS.openFiles),
  ASH_SANDBOX_FILE_SIZE_MB: integer(1, 1_048_576).default(DEFAULT_LIMITS.fileSizeMb),
  ASH_SANDBOX_DISK_MB: integer(32, 1_048_576).default(DEFAULT_LIMITS.diskMb),
  ASH_SANDBOX_OUTPUT_MB_PER_SECOND: integer(1, 1_048_576).default(DEFAULT_LIMITS.outputMbPerSecond),
  ASH_SANDBOX_UID_BASE: integer(1, MAX_UID).default(SANDBOX_UIDS.base),
  ASH_SANDBOX_UID_COUNT: integer(1, MAX_UID).default(SANDBOX_UIDS.count),
  ASH_RUNTIME_DIR: z.string().optional(),
  ASH_BRIDGE_ENTRY: z.string().optional(),
  ASH_ALLOW_PATH_DEPLOY: flag.default(false),
  ASH_LOG_LEVEL: oneOf(LOG_LEVELS).default('info'),
  ASH_SESSION_LOG_MB: integer(1, 1_048_576).default(4096),
  ASH_DEBUG_TIMING: flag.default(false),
  ASH_TURN_TIMEOUT_MS: integer(1, MAX_TIMEOUT_MS).default(3_600_000),
  ASH_PERMISSION_TIMEOUT_MS: integer(1, MAX_TIMEOUT_MS).default(600_000),
  ASH_MODEL_IDLE_TIMEOUT_MS: integer(1, MAX_TIMEOUT_MS).default(300_000),
  ASH_SHUTDOWN_TIMEOUT_MS: integer(0, MAX_TIMEOUT_MS).default(10_000),
  ASH_IDLE_TIMEOUT_MS: integer(100, MAX_TIMEOUT_MS).default(600_000),
  ASH_CODE_IDLE_TIMEOUT_MS: integer(100, MAX_TIMEOUT_MS).default(1_800_000),
  ASH_CODE_LIFETIME_MS: integer(100, MAX_TIMEOUT_MS).default(21_600_000),
  ASH_WARM_SPARES: integer(0, 100).default(0),
  ASH_RETENTION_CHECKPOINTS: integer(1, 100_000).default(100),
  ASH_RETENTION_DAYS: integer(1, 36_500).optional(),
  ASH_RETENTION_ARTIFACT_DAYS: integer(1, 36_500).default(30),
  ASH_RETENTION_SESSION_DAYS: integer(1, 36_500).default(30),
  ASH_ARTIFACTS_MB: integer(0, 1_048_576).default(1024),
  ASH_GC_INTERVAL_MS: integer(1_000, MAX_TIMEOUT_MS).default(3_600_000),
  ASH_SNAPSHOT_URL: z
    .string()
    .regex(
      /^(s3|gs):\/\/[a-z0-9][a-z0-9._-]{1,62}(\/[A-Za-z0-9._/-]*)?$/,
      'must be s3://bucket/prefix or gs://bucket/prefix',
    )
    .optional(),
  ASH_S3_ENDPOINT: url('http:', 'https:').optional(),
  ASH_S3_REGION: z.string().optional(),
  ASH_S3_PATH_STYLE: flag.optional(),
  ASH_REGISTRY_DIR: z.string().optional(),
  ASH_FAULT_POINT: z.string().optional(),
  ASH_CREDENTIAL_KEY: z.string().min(16, 'must have at least 16 characters').optional(),
  ASH_PIP_INDEX_URL: indexUrl().optional(),
  ASH_NPM_REGISTRY: indexUrl().optional(),
  ANTHROPIC_API_KEY: headerSafe.optional(),
  ANTHROPIC_AUTH_TOKEN: headerSafe.optional(),
  ANTHROPIC_BASE_URL: url('http:', 'https:').optional(),
  ANTHROPIC_CUSTOM_HEADERS: headerLines.default({}),
  CLAUDE_CODE_MAX_RETRIES: integer(0, 100).optional(),
  ASH_MODEL_PRICES: jsonObject.optional(),
  XDG_DATA_HOME: z.string().optional(),
})
type Variables = z.infer<typeof Variables>

function toConfig(variables: Variables, host: HostFacts): Config {
  assertKeys(variables)
  const dataDir = resolve(variables.ASH_DATA_DIR ?? defaultDataDir(variables.XDG_DATA_HOME, host))
  return {
    port: variables.ASH_PORT,
    host: variables.ASH_HOST,
    keys: variables.ASH_KEYS,
    ...present('dialects', dialectConfig(variables)),
    ...present('previews', previewConfig(variables)),
    dataDir,
    ...present('apiKey', variables.ASH_API_KEY),
    ...present('databaseUrl', variables.ASH_DATABASE_URL),
    sqliteSync: variables.ASH_SQLITE_SYNC,
    provider: variables.ASH_PROVIDER,
    maxSandboxes: variables.ASH_MAX_SANDBOXES,
    limits: {
      memoryMb: variables.ASH_SANDBOX_MEMORY_MB,
      cpus: variables.ASH_SANDBOX_CPUS,
      processes: variables.ASH_SANDBOX_PROCESSES,
      openFiles: variables.ASH_SANDBOX_OPEN_FILES,
      fileSizeMb: variables.ASH_SANDBOX_FILE_SIZE_MB,
      diskMb: variables.ASH_SANDBOX_DISK_MB,
      outputMbPerSecond: variables.ASH_SANDBOX_OUTPUT_MB_PER_SECOND,
    },
    sandboxUids: uidRange(variables.ASH_SANDBOX_UID_BASE, variables.ASH_SANDBOX_UID_COUNT),
    runtimeDir: resolve(variables.ASH_RUNTIME_DIR ?? join(dataDir, 'runtime')),
    ...present('bridgeEntry', variables.ASH_BRIDGE_ENTRY && resolve(variables.ASH_BRIDGE_ENTRY)),
    allowPathDeploy: variables.ASH_ALLOW_PATH_DEPLOY,
    logLevel: variables.ASH_LOG_LEVEL,
    turnTimeoutMs: variables.ASH_TURN_TIMEOUT_MS,
    permissionTimeoutMs: variables.ASH_PERMISSION_TIMEOUT_MS,
    maxLogChars: variables.ASH_SESSION_LOG_MB * 1024 * 1024,
    debugTiming: variables.ASH_DEBUG_TIMING,
    modelIdleTimeoutMs: variables.ASH_MODEL_IDLE_TIMEOUT_MS,
    shutdownTimeoutMs: variables.ASH_SHUTDOWN_TIMEOUT_MS,
    idleTimeoutMs: variables.ASH_IDLE_TIMEOUT_MS,
    codeIdleTimeoutMs: variables.ASH_CODE_IDLE_TIMEOUT_MS,
    codeLifetimeMs: variables.ASH_CODE_LIFETIME_MS,
    warmSpares: variables.ASH_WARM_SPARES,
    retention: {
      checkpoints: variables.ASH_RETENTION_CHECKPOINTS,
      ...present('days', variables.ASH_RETENTION_DAYS),
      sessionDays: variables.ASH_RETENTION_SESSION_DAYS,
    },
    artifactDays: variables.ASH_RETENTION_ARTIFACT_DAYS,
    maxArtifactBytes: variables.ASH_ARTIFACTS_MB * 1024 * 1024,
    gcIntervalMs: variables.ASH_GC_INTERVAL_MS,
    ...present('snapshotStore', snapshotStore(variables)),
    ...present('registryDir', variables.ASH_REGISTRY_DIR && resolve(variables.ASH_REGISTRY_DIR)),
    ...present('faultPoint', variables.ASH_FAULT_POINT),
    ...present('credentialKey', variables.ASH_CREDENTIAL_KEY),
    ...present('claudeMaxRetries', variables.CLAUDE_CODE_MAX_RETRIES),
    ...present('modelPrices', variables.ASH_MODEL_PRICES),
    packageIndexes: {
      ...present('pip', variables.ASH_PIP_INDEX_URL),
      ...present('npm', variables.ASH_NPM_REGISTRY),
    },
    model: modelConfig(variables),
  }
}

function assertKeys(variables: Variables): void {
  for (const name of ['ASH_KEYS', 'ASH_DIALECT_KEYS'] as const)
    if (variables[name] === 'off' && !isLoopback(variables.ASH_HOST))
      throw new Error(`${name}: can be off only while ASH_HOST is a loopback address`)
}

function uidRange(base: number, count: number): Config['sandboxUids'] {
  if (base + count - 1 > MAX_UID) {
    throw new Error(
      `ASH_SANDBOX_UID_COUNT: the range from ASH_SANDBOX_UID_BASE must end at most at ${MAX_UID}`,
    )
  }
  return { base, count }
}

/** By default beside the API; also where that port is chosen by the system, or in use. */
function previewConfig({
  ASH_PORT,
  ASH_PREVIEW_PORT,
  ASH_PREVIEW_HOST,
}: Variables): PreviewConfig | undefined {
  if (ASH_PREVIEW_PORT === 'off' || ASH_PREVIEW_PORT === 0) return undefined
  const beside = ASH_PORT === 0 || ASH_PORT === 65_535 ? 0 : ASH_PORT + 1
  const [, scheme = 'https://', name] = /^(https?:\/\/)?(.*)$/.exec(ASH_PREVIEW_HOST ?? '') ?? []
  return {
    port: ASH_PREVIEW_PORT ?? beside,
    isFixed: ASH_PREVIEW_PORT !== undefined,
    ...present('url', name ? `${scheme}${name}` : undefined),
  }
}

const GCS_ENDPOINT = 'https://storage.googleapis.com'

function snapshotStore(variables: Variables): SnapshotStoreConfig | undefined {
  const { ASH_SNAPSHOT_URL, ASH_S3_ENDPOINT, ASH_S3_REGION, ASH_S3_PATH_STYLE } = variables
  if (ASH_SNAPSHOT_URL === undefined) return undefined
  const { protocol, host, pathname } = new URL(ASH_SNAPSHOT_URL)
  const folder = pathname.replace(/^\/+|\/+$/g, '')
  const endpoint = ASH_S3_ENDPOINT ?? (protocol === 'gs:' ? GCS_ENDPOINT : undefined)
  return {
    bucket: host,
    prefix: folder === '' ? '' : `${folder}/`,
    // Servers other than Amazon's seldom have a name for each bucket.
    pathStyle: ASH_S3_PATH_STYLE ?? endpoint !== undefined,
    ...present('endpoint', endpoint),
    ...present('region', ASH_S3_REGION ?? (protocol === 'gs:' ? 'auto' : undefined)),
  }
}

const ANTHROPIC_API = 'https://api.anthropic.com'

function modelConfig(variables: Variables): ModelConfig {
  const { ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, ANTHROPIC_BASE_URL } = variables
  if (!ANTHROPIC_API_KEY && !ANTHROPIC_AUTH_TOKEN && !ANTHROPIC_BASE_URL) return { kind: 'offline' }
  return {
    kind: 'anthropic',
    baseUrl: ANTHROPIC_BASE_URL ?? ANTHROPIC_API,
    ...present('apiKey', ANTHROPIC_API_KEY),
    ...present('authToken', ANTHROPIC_AUTH_TOKEN),
    headers: variables.ANTHROPIC_CUSTOM_HEADERS,
  }
}

function present<Key extends string, Value>(key: Key, value: Value | undefined): { [K in Key]?: Value } {
  return value === undefined ? {} : ({ [key]: value } as { [K in Key]: Value })
}

/** `ASH_PORT=` in a unit file means the default, not the empty string. */
function withoutEmpty(env: NodeJS.ProcessEnv): Record<string, string> {
  const entries = Object.entries(env).filter((entry): entry is [string, string] => Boolean(entry[1]?.trim()))
  return Object.fromEntries(entries)
}

function describeFaults(error: z.ZodError): string {
  return error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`).join('\n')
}

function deepFreeze<T extends object>(value: T): T {
  for (const part of Object.values(value)) if (typeof part === 'object' && part !== null) deepFreeze(part)
  return Object.freeze(value)
}
