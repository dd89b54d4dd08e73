import type { Command } from 'commander'
import { addCommand, type Context, type Run } from '../context.ts'
import { CliError, EXIT } from '../failure.ts'
import { green } from '../output.ts'
import { findServer, isAnswering, isServer, removePidFile, waitUntil } from '../server-process.ts'

/** Running turns get ASH_SHUTDOWN_TIMEOUT_MS, 10 s unless set, before their sandboxes are stopped. */
const STOP_TIMEOUT_MS = 45_000
const KILL_TIMEOUT_MS = 5000

export function addStop(program: Command, run: Run): void {
  const examples = ['ash stop', 'ash stop && ash start']
  addCommand(program, 'stop', 'Stop the server that "ash start" started.', examples).action(run(stop))
}

async function stop(context: Context): Promise<void> {
  const { config, output } = context
  const pid = await findServer(config.dataDir)
  if (pid === undefined) return await reportNotRunning(context)
  sendSignal(pid, 'SIGTERM')
  const isStopped = await hasEnded(context, pid, STOP_TIMEOUT_MS)
  if (!isStopped) {
    output.note(`The server (process ${pid}) did not stop within ${STOP_TIMEOUT_MS / 1000} s; killing it`)
    sendSignal(pid, 'SIGKILL')
    if (!(await hasEnded(context, pid, KILL_TIMEOUT_MS))) {
      throw new CliError(EXIT.failed, `Process ${pid} cannot be killed`, 'Look at it with: ps -fp <pid>')
    }
  }
  await removePidFile(config.dataDir)
  output.result({ stopped: true, pid, isKilled: !isStopped }, [green('✓'), ' Stopped'])
}

async function reportNotRunning({ config, output, signal }: Context): Promise<void> {
  if (await isAnswering(config, signal)) {
    throw new CliError(
      EXIT.failed,
      `The server at ${config.localUrl} was not started by "ash start" with data in ${config.dataDir}`,
      'Stop it where it was started, or set ASH_DATA_DIR as it was then',
    )
  }
  await removePidFile(config.dataDir)
  output.result({ stopped: false, pid: null, isKilled: false }, ['No server is running'])
}

function sendSignal(pid: number, signal: 'SIGTERM' | 'SIGKILL'): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EPERM') {
      throw new CliError(EXIT.failed, `Process ${pid} belongs to another user`, 'Run this as that user')
    }
    if (code !== 'ESRCH') throw error
  }
}

async function hasEnded({ output, signal }: Context, pid: number, timeoutMs: number): Promise<boolean> {
  return await waitUntil(async () => !(await isServer(pid)), {
    timeoutMs,
    signal,
    onWait: (seconds) => output.progress(`Stopping the server… ${seconds} s`),
  })
}
