import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { type ExecResult, MAX_EXEC_OUTPUT_BYTES } from '@ash-ai/shared'

/** After the command is gone, what it left in the background may still hold its output open. */
const DRAIN_MS = 100

interface CommandSpec {
  command: string
  timeoutMs: number
  cwd: string
  env: Record<string, string>
}

/** Runs a shell command to its end or time-out, then kills what is left of its process group. */
export async function runCommand({ command, timeoutMs, cwd, env }: CommandSpec): Promise<ExecResult> {
  const shell = existsSync('/bin/bash') ? '/bin/bash' : '/bin/sh'
  const child = spawn(shell, ['-c', command], { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  const [stdout, stderr] = [collect(child.stdout), collect(child.stderr)]
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
  const closed = new Promise((resolve) => child.once('close', resolve))
  const [exitCode, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (code, by) => resolve([code, by]))
  }).finally(() => clearTimeout(timer))
  await Promise.race([closed, new Promise((resolve) => setTimeout(resolve, DRAIN_MS))])
  killGroup()
  const truncated = stdout.isCut() || stderr.isCut()
  return { exitCode, signal, stdout: stdout.text(), stderr: stderr.text(), truncated, timedOut }
}

function collect(stream: Readable): { text: () => string; isCut: () => boolean } {
  const chunks: Buffer[] = []
  let size = 0
  let isCut = false
  stream.on('data', (chunk: Buffer) => {
    const room = MAX_EXEC_OUTPUT_BYTES - size
    if (chunk.length > room) isCut = true
    if (room > 0) chunks.push(chunk.subarray(0, room))
    size += Math.min(chunk.length, room)
  })
  return { text: () => Buffer.concat(chunks).toString('utf8'), isCut: () => isCut }
}
