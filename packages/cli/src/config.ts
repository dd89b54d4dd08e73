import { readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join, resolve } from 'node:path'
import { DEFAULT_HOST, DEFAULT_PORT } from '@ash-ai/sdk'
import { CliError, EXIT } from './failure.ts'

export interface Config {
  /** Where the API is. */
  url: string
  /** Where a server started here listens. */
  localUrl: string
  dataDir: string
  apiKey: string | undefined
  hasColor: boolean
  /** What a server started here gets of this environment. */
  serverEnv: Record<string, string>
  /** Any variable, for `--env NAME`. */
  variable(name: string): string | undefined
}

/** Settings from the environment; `url` is the `--url` option. */
export function readConfig(url: string | undefined, env: NodeJS.ProcessEnv = process.env): Config {
  const dataDir = resolve(env.ASH_DATA_DIR || defaultDataDir(env))
  const localUrl = `http://${toUrlHost(env.ASH_HOST || DEFAULT_HOST)}:${parsePort(env.ASH_PORT)}`
  const apiUrl = checkUrl(url ?? (env.ASH_SERVER_URL || localUrl))
  return Object.freeze({
    url: apiUrl,
    localUrl,
    dataDir,
    apiKey: env.ASH_API_KEY || (isOwnServer(apiUrl, localUrl) ? readKeyFile(dataDir) : undefined),
    hasColor: !env.NO_COLOR && env.TERM !== 'dumb',
    serverEnv: toServerEnv(env),
    variable: (name: string) => env[name],
  })
}

/** Files of a server started here. */
export const serverFiles = (dataDir: string) => ({
  key: join(dataDir, 'api-key'),
  pid: join(dataDir, 'server.pid'),
  log: join(dataDir, 'server.log'),
})

function defaultDataDir(env: NodeJS.ProcessEnv): string {
  if (process.getuid?.() === 0) return '/var/lib/ash'
  return join(env.XDG_DATA_HOME || join(homedir(), '.local', 'share'), 'ash')
}

function parsePort(text: string | undefined): number {
  const port = Number(text || DEFAULT_PORT)
  if (Number.isInteger(port) && port > 0 && port < 65_536) return port
  throw new CliError(EXIT.usage, `ASH_PORT is "${text}"`, 'Set it to a number from 1 to 65535, or unset it')
}

function toUrlHost(host: string): string {
  if (host === '0.0.0.0' || host === '::') return DEFAULT_HOST
  return host.includes(':') ? `[${host}]` : host
}

function checkUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined
  if (url?.username === '' && /^https?:$/.test(url.protocol)) return text.replace(/\/+$/, '')
  throw new CliError(EXIT.usage, `"${text}" is not the address of a server`, 'Give one like http://host:4100')
}

/** The key in the data directory is for the server of this machine and is sent nowhere else. */
function isOwnServer(url: string, localUrl: string): boolean {
  const { hostname, origin } = new URL(url)
  return origin === new URL(localUrl).origin || /^(127\.\d+\.\d+\.\d+|localhost|\[::1\])$/.test(hostname)
}

function readKeyFile(dataDir: string): string | undefined {
  try {
    return readFileSync(serverFiles(dataDir).key, 'utf8').trim() || undefined
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // Without a key the server's own answer says best what is missing.
    if (code === 'ENOENT' || code === 'EACCES' || code === 'ENOTDIR') return undefined
    throw error
  }
}

const SERVER_VARIABLES = new Set(
  'PATH HOME LANG LC_ALL TZ XDG_DATA_HOME NODE_EXTRA_CA_CERTS CLAUDE_CODE_MAX_RETRIES'.split(' '),
)
const PROXY_VARIABLE = /^(https?|all|no)_proxy$/i

function toServerEnv(env: NodeJS.ProcessEnv): Record<string, string> {
  const isWanted = (name: string) =>
    SERVER_VARIABLES.has(name) ||
    /^(ASH|ANTHROPIC)_/.test(name) ||
    PROXY_VARIABLE.test(name) ||
    // Where the remote store of checkpoints takes its credentials from.
    (Boolean(env.ASH_SNAPSHOT_URL) && name.startsWith('AWS_'))
  return Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) => (isWanted(name) && value ? [[name, value]] : [])),
  )
}
