import type { ChildProcess } from 'node:child_process'
import type { Duplex, Readable, Writable } from 'node:stream'
import { AshError } from '@ash-ai/shared'
import type { SandboxExit, SandboxProcess } from '../provider.ts'

const STDERR_TAIL_CHARS = 8 * 1024

interface Descriptors {
  bridgeFd: number
  /** Where bubblewrap reports the pid of the sandbox's init. */
  statusFd?: number
  /** Bytes the child reads from a descriptor before anything else. */
  input?: { fd: number; bytes: string }
}

/** Turns a spawned child into a SandboxProcess: exit, stderr tail, and a kill that waits for the whole tree. */
export async function watchProcess(child: ChildProcess, fds: Descriptors): Promise<SandboxProcess> {
  const stderr = keepTail(child.stderr)
  const exited = new Promise<SandboxExit>((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal, stderr: stderr() }))
  })
  const initPid = readInitPid(streamOf(child, fds.statusFd))
  await spawned(child)
  if (fds.input) {
    const input = streamOf(child, fds.input.fd) as Writable | undefined
    input?.on('error', () => {}) // A child that died early says so by its exit.
    input?.end(fds.input.bytes)
  }
  const stream = streamOf(child, fds.bridgeFd) as Duplex
  return {
    pid: child.pid ?? 0,
    stream,
    exited,
    async kill() {
      if (child.exitCode === null && child.signalCode === null) {
        // Killing init takes its whole pid namespace with it, and bwrap exits only when that is gone. Until
        // then init is not reaped, so its pid cannot mean another process.
        const pid = initPid()
        if (pid === undefined || !tryKill(pid)) child.kill('SIGKILL')
      }
      await exited
      stream.destroy()
    },
  }
}

function tryKill(pid: number): boolean {
  try {
    return process.kill(pid, 'SIGKILL')
  } catch {
    return false
  }
}

function streamOf(child: ChildProcess, fd: number | undefined): Duplex | undefined {
  return fd === undefined ? undefined : ((child.stdio[fd] as Duplex | null | undefined) ?? undefined)
}

function spawned(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    child.once('spawn', resolve)
    child.once('error', (error) => {
      reject(
        new AshError('sandbox_start_failed', `Cannot start the sandbox: ${error.message}`, { cause: error }),
      )
    })
  })
}

function readInitPid(status: Readable | undefined): () => number | undefined {
  let text = ''
  status?.on('data', (chunk: Buffer) => {
    if (text.length < 4096) text += chunk.toString('latin1')
  })
  status?.on('error', () => {})
  return () => {
    const pid = /"child-pid"\s*:\s*(\d+)/.exec(text)?.[1]
    return pid === undefined ? undefined : Number(pid)
  }
}

function keepTail(stream: Readable | null): () => string {
  let tail = ''
  stream?.setEncoding('utf8').on('data', (chunk: string) => {
    tail = (tail + chunk).slice(-STDERR_TAIL_CHARS)
  })
  return () => tail
}
