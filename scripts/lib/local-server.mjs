// An Ash server on this machine: is there one, start one, is it ready.
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { exitCode, startProcess, stopProcess } from './processes.mjs'
import { lastLines } from './steps.mjs'
import { root, UserError, workspaceNode } from './workspace.mjs'

// The first start copies the sandbox runtime, some 500 MB.
const READY_TIMEOUT_MS = 120_000
const PROBE_TIMEOUT_MS = 3_000
const POLL_MS = 100
const STOP_GRACE_MS = 60_000

const PASSED_ON = new Set(
  ['PATH', 'HOME', 'LANG', 'TZ', 'XDG_DATA_HOME', 'NODE_EXTRA_CA_CERTS', 'CLAUDE_CODE_MAX_RETRIES'].concat(
    ...['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY'].map((name) => [name, name.toLowerCase()]),
    'NODE_USE_ENV_PROXY',
  ),
)

/** Of this environment, what any process needs and what is its `own`. */
export function allowedEnv(own) {
  const isAllowed = ([name]) => PASSED_ON.has(name) || own.test(name)
  return Object.fromEntries(Object.entries(process.env).filter(isAllowed))
}

export function serverUrl(env = process.env) {
  const host = env.ASH_HOST || '127.0.0.1'
  // Listening everywhere includes here.
  const reachable =
    { '0.0.0.0': '127.0.0.1', '::': '127.0.0.1' }[host] ?? (host.includes(':') ? `[${host}]` : host)
  return `http://${reachable}:${env.ASH_PORT || 4100}`
}

/** `/health` of the Ash that answers at `url`; undefined if nothing listens there, an error if something else does. */
export async function findServer(url) {
  const health = await getJson(`${url}/health`).catch((error) => {
    if (error.cause?.code === 'ECONNREFUSED') return undefined
    return {}
  })
  if (health === undefined || (health.status === 'ok' && 'isolation' in health)) return health
  const { port } = new URL(url)
  throw new UserError(`Port ${port} is taken by something else. Choose another: ASH_PORT=4200 npm start`)
}

const getJson = async (url) => (await fetch(url, { signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) })).json()

/** Starts the server with its log in the data folder and returns once it is ready: `{ child, isGraceful, graceMs }`. */
export async function startServer({ url, dataDir }) {
  const logPath = openLog(dataDir)
  const log = openSync(logPath, 'a', 0o600)
  const options = { isGraceful: true, graceMs: STOP_GRACE_MS }
  const script = join(root, 'scripts', 'server.mjs')
  const child = startProcess(workspaceNode(), [script], {
    ...options,
    env: allowedEnv(/^(ASH|ANTHROPIC)_/),
    stdio: ['ignore', log, log],
  })
  closeSync(log)
  const server = { child, logPath, ...options }
  try {
    await waitUntilReady(child, url, logPath)
  } catch (error) {
    await stopProcess(server)
    throw error
  }
  return server
}

/** A fresh log for each start; the one before is kept. */
function openLog(dataDir) {
  const logPath = join(dataDir, 'server.log')
  try {
    mkdirSync(dataDir, { recursive: true })
    if (existsSync(logPath)) renameSync(logPath, `${logPath}.1`)
  } catch (error) {
    throw new UserError(`${error.message}\nChoose a data folder you may write to: ASH_DATA_DIR=… npm start`)
  }
  return logPath
}

async function waitUntilReady(child, url, logPath) {
  const deadlineMs = Date.now() + READY_TIMEOUT_MS
  let reply
  while (Date.now() < deadlineMs) {
    if (child.exitCode !== null || child.signalCode !== null) {
      throw new UserError(
        `The server ended (${exitCode(child.exitCode, child.signalCode)}).\n${showLog(logPath)}`,
      )
    }
    reply = await getJson(`${url}/ready`).catch(() => undefined)
    if (reply?.ready === true) return
    await sleep(POLL_MS)
  }
  const checks = JSON.stringify(reply?.checks ?? 'no answer')
  throw new UserError(`The server did not become ready: ${checks}\n${showLog(logPath)}`)
}

export const showLog = (logPath) =>
  `Last lines of ${logPath}:\n\n${lastLines(readFileSync(logPath, 'utf8'), 20)}`
