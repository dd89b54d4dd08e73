// Child processes that never outlive us: each leads a group of its own, and a signal to us ends them all.
import { spawn } from 'node:child_process'
import { constants } from 'node:os'
import { root, workspacePath } from './workspace.mjs'

const MAX_KEPT_OUTPUT_CHARS = 200_000
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP']

const running = new Set()
let stopRequestedAtMs

/** Whether a signal asked us to leave; what ends now ended because of that. */
export const isStopping = () => stopRequestedAtMs !== undefined

/** Exit code a shell would report for how a child ended. */
export const exitCode = (code, signal) => code ?? 128 + constants.signals[signal]

/**
 * Starts a child in a process group of its own. `isGraceful` children are sent SIGTERM alone, without the
 * processes they look after (a server has sandboxes to save first); of others the whole group gets it.
 */
export function startProcess(command, args, { isGraceful = false, graceMs = 5_000, ...options } = {}) {
  installSignalHandlers()
  const child = spawn(command, args, { cwd: root, detached: true, ...options })
  const entry = { child, isGraceful, graceMs }
  running.add(entry)
  child.once('error', () => running.delete(entry))
  child.once('exit', () => {
    running.delete(entry)
    killGroup(child, 'SIGKILL')
  })
  return child
}

/** Runs a command to its end: `{ code, output, isTimeout }`. `output: 'inherit'` shows it, otherwise it is kept. */
export function run(command, args, { timeoutMs, output = 'keep', env = process.env } = {}) {
  const stdio = ['ignore', ...(output === 'inherit' ? ['inherit', 'inherit'] : ['pipe', 'pipe'])]
  const child = startProcess(command, args, { stdio, env: { ...env, PATH: workspacePath() } })
  return new Promise((resolve, reject) => {
    let kept = ''
    let isTimeout = false
    const keep = (chunk) => {
      kept = (kept + chunk).slice(-MAX_KEPT_OUTPUT_CHARS)
    }
    child.stdout?.setEncoding('utf8').on('data', keep)
    child.stderr?.setEncoding('utf8').on('data', keep)
    const expire = () => {
      isTimeout = true
      killGroup(child, 'SIGKILL')
    }
    const timer = timeoutMs === undefined ? undefined : setTimeout(expire, timeoutMs)
    child.once('error', (error) => {
      clearTimeout(timer)
      reject(error)
    })
    child.once('close', (code, signal) => {
      clearTimeout(timer)
      resolve({ code: exitCode(code, signal), output: kept, isTimeout })
    })
  })
}

/** Stops one child: SIGTERM, then its whole group is killed once its grace is over. Resolves when it is gone. */
export async function stopProcess({ child, isGraceful, graceMs }) {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = new Promise((resolve) => child.once('exit', resolve))
  if (isGraceful) child.kill('SIGTERM')
  else killGroup(child, 'SIGTERM')
  const timer = setTimeout(() => killGroup(child, 'SIGKILL'), graceMs)
  await gone
  clearTimeout(timer)
}

function killGroup(child, signal) {
  if (child.pid === undefined) return
  try {
    process.kill(-child.pid, signal)
  } catch (error) {
    // EPERM: macOS, for a group of which only zombies are left.
    if (error.code !== 'ESRCH' && error.code !== 'EPERM') throw error
  }
}

let hasSignalHandlers = false
function installSignalHandlers() {
  if (hasSignalHandlers) return
  hasSignalHandlers = true
  for (const signal of SIGNALS) process.on(signal, () => stopEverything(signal))
  process.on('exit', () => {
    for (const { child } of running) killGroup(child, 'SIGKILL')
  })
}

function stopEverything(signal) {
  // One Ctrl-C arrives twice under npm, from the terminal and from npm; only a later one is impatience.
  if (isStopping()) {
    if (Date.now() - stopRequestedAtMs > 1_000) process.exit(exitCode(null, signal))
    return
  }
  stopRequestedAtMs = Date.now()
  // A server that stops when asked did nothing wrong; interrupted work did not finish.
  const entries = [...running]
  const isClean = entries.length > 0 && entries.every((entry) => entry.isGraceful)
  void Promise.all(entries.map(stopProcess)).then(() => process.exit(isClean ? 0 : exitCode(null, signal)))
}
