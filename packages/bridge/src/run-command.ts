import { existsSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { type ExecResult, MAX_EXEC_OUTPUT_BYTES, MAX_LINE_BYTES } from '@ash-ai/shared'
import { spawnWithOutput } from './execute/output-pipes.ts'
import { childProcess } from './late-modules.ts'

/** After the command is gone, what it left in the background may still hold its output open. */
const DRAIN_MS = 100
/** Both outputs go into one line of the protocol. */
const MAX_ENCODED_BYTES = MAX_LINE_BYTES / 2 - 1024

interface CommandSpec {
  command: string
  timeoutMs: number
  cwd: string
  env: Record<string, string>
  /** Kills the command: nothing may outlive its bridge. */
  signal: AbortSignal
}

/** Runs a shell command to its end or time-out, then kills what is left of its process group. */
export async function runCommand(spec: CommandSpec): Promise<ExecResult> {
  const { command, timeoutMs, cwd, env, signal: abort } = spec
  const shell = existsSync('/bin/bash') ? '/bin/bash' : '/bin/sh'
  const { child, ...output } = await spawnWithOutput((...ends) =>
    childProcess().spawn(shell, ['-c', command], { cwd, env, detached: true, stdio: ['ignore', ...ends] }),
  )
  const [stdout, stderr] = [collect(output.stdout), collect(output.stderr)]
  const killGroup = () => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL')
    } catch {
      // The whole group is gone already.
    }
  }
  let timedOut = false
  const timer = setTimeout(() => {
    timedOut = true
    killGroup()
  }, timeoutMs)
  abort.addEventListener('abort', killGroup)
  if (abort.aborted) killGroup()
  const closed = Promise.all([stdout.closed, stderr.closed])
  const [exitCode, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (code, by) => resolve([code, by]))
  }).finally(() => clearTimeout(timer))
  await Promise.race([closed, drainTime()])
  abort.removeEventListener('abort', killGroup)
  killGroup()
  const [out, err] = [stdout.finish(), stderr.finish()]
  return {
    exitCode,
    signal,
    stdout: out.text,
    stderr: err.text,
    truncated: out.isCut || err.isCut,
    timedOut,
  }
}

/** Ends after a round of reading, so that a busy bridge does not lose output that was there in time. */
function drainTime(): Promise<void> {
  return new Promise((resolve) => setTimeout(() => setImmediate(resolve), DRAIN_MS))
}

interface Output {
  text: string
  isCut: boolean
}

function collect(stream: Readable): { finish: () => Output; closed: Promise<unknown> } {
  let chunks: Buffer[] = []
  let size = 0
  let isCut = false
  stream.on('data', (chunk: Buffer) => {
    const room = MAX_EXEC_OUTPUT_BYTES - size
    if (chunk.length > room) isCut = true
    if (room > 0) chunks.push(chunk.subarray(0, room))
    size += Math.min(chunk.length, room)
  })
  return {
    closed: new Promise((resolve) => stream.once('close', resolve)),
    finish() {
      const whole = Buffer.concat(chunks).toString('utf8')
      // Something that left the group may go on writing here; nobody reads that any more.
      stream.removeAllListeners('data').resume()
      chunks = []
      const text = fitLine(whole)
      return { text, isCut: isCut || text.length < whole.length }
    },
  }
}

/** Control characters and bytes that are no text grow up to sixfold in JSON. */
function fitLine(text: string): string {
  let fitting = text
  while (
    fitting.length * 6 > MAX_ENCODED_BYTES &&
    Buffer.byteLength(JSON.stringify(fitting)) > MAX_ENCODED_BYTES
  ) {
    fitting = fitting.slice(0, fitting.length / 2)
  }
  return fitting
}
