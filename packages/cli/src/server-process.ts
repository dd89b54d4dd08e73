import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { mkdir, open, readFile, rm, writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { type Config, serverFiles } from './config.ts'
import { createClient } from './context.ts'

const ROOT_DIR = fileURLToPath(new URL('../../../', import.meta.url))
const SERVER_SCRIPT = 'scripts/server.mjs'

/** The process id of the server started here, if it is running. */
export async function findServer(dataDir: string): Promise<number | undefined> {
  const text = await readFile(serverFiles(dataDir).pid, 'utf8').catch(ifMissing)
  const pid = Number(text?.trim())
  return Number.isInteger(pid) && pid > 1 && (await isServer(pid)) ? pid : undefined
}

/** A process id may have passed to another program: only one that runs the server script counts. */
export async function isServer(pid: number): Promise<boolean> {
  return (await commandLine(pid)).includes(SERVER_SCRIPT)
}

/** Starts a server that outlives this command. Its output goes to the log, which only its owner can read. */
export async function spawnServer(config: Config): Promise<ChildProcess & { pid: number }> {
  const files = serverFiles(config.dataDir)
  // Searchable by others: sandboxes run as users of their own and reach their files below it.
  await mkdir(config.dataDir, { recursive: true, mode: 0o755 })
  const log = await open(files.log, 'a', 0o600)
  try {
    await log.chmod(0o600)
    const child = spawn(process.execPath, [`${ROOT_DIR}${SERVER_SCRIPT}`], {
      env: { ...config.serverEnv, ASH_DATA_DIR: config.dataDir },
      stdio: ['ignore', log.fd, log.fd],
      detached: true,
    })
    await new Promise((resolve, reject) => child.once('spawn', resolve).once('error', reject))
    child.unref()
    return child as ChildProcess & { pid: number }
  } finally {
    await log.close()
  }
}

/** False if another `ash start` has been quicker. */
export async function claimPidFile(dataDir: string, pid: number): Promise<boolean> {
  const file = serverFiles(dataDir).pid
  try {
    await writeFile(file, `${pid}\n`, { flag: 'wx', mode: 0o600 })
    return true
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false
    throw error
  }
}

export async function removePidFile(dataDir: string): Promise<void> {
  await rm(serverFiles(dataDir).pid, { force: true })
}

/** Whether any server answers where one started here would. */
export async function isAnswering(config: Config, signal: AbortSignal): Promise<boolean> {
  const client = createClient(config, config.localUrl)
  return await client.health({ timeoutMs: ANSWER_TIMEOUT_MS, retries: 0, signal }).then(
    () => true,
    () => false,
  )
}

/** Ends when `condition` holds (true) or the time is over (false). `onWait` hears of it every few seconds. */
export async function waitUntil(
  condition: () => Promise<boolean>,
  options: { timeoutMs: number; signal: AbortSignal; onWait: (seconds: number) => void },
): Promise<boolean> {
  const startedAt = performance.now()
  for (let shownSeconds = -1; ; await sleep(POLL_MS)) {
    options.signal.throwIfAborted()
    if (await condition()) return true
    const waitedMs = performance.now() - startedAt
    if (waitedMs > options.timeoutMs) return false
    const seconds = Math.floor(waitedMs / SHOW_EVERY_MS) * (SHOW_EVERY_MS / 1000)
    if (seconds > shownSeconds) options.onWait(seconds)
    shownSeconds = seconds
  }
}
const ANSWER_TIMEOUT_MS = 2000
const POLL_MS = 150
const SHOW_EVERY_MS = 5000

async function commandLine(pid: number): Promise<string> {
  if (process.platform === 'linux') {
    return (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(ifMissing)) ?? ''
  }
  const ps = promisify(execFile)('ps', ['-p', String(pid), '-o', 'command='])
  // `ps` fails when there is no such process.
  return await ps.then(
    ({ stdout }) => stdout,
    () => '',
  )
}

function ifMissing(error: unknown): undefined {
  const code = codeOf(error)
  if (code !== 'ENOENT' && code !== 'ESRCH' && code !== 'ENOTDIR') throw error
}

const codeOf = (error: unknown) => (error as NodeJS.ErrnoException).code
