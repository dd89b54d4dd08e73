import type { ChildProcess } from 'node:child_process'
import type { Duplex, Readable, Writable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { AshError } from '@ash-ai/shared'
import type { LimitGroup } from '../limits/limit-backend.ts'
import type { SandboxExit, SandboxProcess } from '../provider.ts'
import { readInitProcess, tryKill } from './init-process.ts'

const STDERR_TAIL_CHARS = 8 * 1024
/** How long the last words of a dead child are waited for, where something it left behind holds its stderr. */
const LAST_WORDS_MS = 200
/** How long a kill waits for the pid of a sandbox's init, which a starting bubblewrap tells within milliseconds. */
const INIT_PID_MS = 2_000

interface Descriptors {
  bridgeFd: number
  /** Where bubblewrap reports the pid of the sandbox's init. */
  statusFd?: number
  /** Descriptor → bytes the child reads from it before anything else. */
  inputs?: Record<number, string | Buffer>
  /** What the child waits for before it runs anything. */
  blockFd?: number
}

/**
 * Turns a spawned child into a SandboxProcess: under its limits before it runs, with its exit, stderr tail, and a
 * kill that waits for the whole tree. The limits go with it.
 */
export async function watchProcess(
  child: ChildProcess,
  fds: Descriptors,
  group: LimitGroup,
): Promise<SandboxProcess> {
  const stderr = keepTail(child.stderr)
  const init = readInitProcess(streamOf(child, fds.statusFd))
  const exited = new Promise<SandboxExit>((resolve) => {
    child.once('exit', async (code, signal) => {
      await stderr.ended()
      const usage = await group.usage()
      await group.kill()
      // bwrap leaves when the bridge ends; the kernel then kills its init, which takes as long as it takes.
      await init.end()
      // A group that cannot be removed is found again by the next start of the server.
      await group.remove().catch(() => {})
      resolve({ code, signal, stderr: stderr.text(), usage })
    })
  })
  await spawned(child)
  for (const [fd, bytes] of Object.entries(fds.inputs ?? {})) {
    const input = streamOf(child, Number(fd)) as Writable | undefined
    input?.on('error', () => {}) // A child that died early says so by its exit.
    input?.end(bytes)
  }
  const stream = streamOf(child, fds.bridgeFd) as Duplex
  await Promise.race([init.isKnown, exited])
  const pid = init.pid() ?? child.pid ?? 0
  await group.add(pid).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ESRCH') return // Dead already, as its exit says.
    tryKill(pid)
    throw error
  })
  const block = streamOf(child, fds.blockFd) as Writable | undefined
  block?.on('error', () => {})
  block?.end('\0')
  return {
    pid: child.pid ?? 0,
    stream,
    exited,
    usage: () => group.usage(),
    hits: () => group.hits(),
    pids: () => group.pids(),
    freeze: () => group.freeze(),
    thaw: () => group.thaw(),
    async kill() {
      // An init that a starting bwrap has not let go yet outlives a killed bwrap for ever, so its pid comes first.
      await Promise.race([init.isKnown, exited, delay(INIT_PID_MS, undefined, { ref: false })])
      if (child.exitCode === null && child.signalCode === null) {
        // Killing init takes its whole pid namespace with it, and bwrap exits only when that is gone. Until
        // then init is not reaped, so its pid cannot mean another process.
        const pid = init.pid()
        if (pid === undefined || !tryKill(pid)) child.kill('SIGKILL')
      }
      // Each one, not only init: the others would run on for a moment, also those that were frozen until now.
      await group.kill()
      await exited
      stream.destroy()
    },
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

function keepTail(stream: Readable | null): { text: () => string; ended: () => Promise<unknown> } {
  let tail = ''
  stream?.setEncoding('utf8').on('data', (chunk: string) => {
    tail = (tail + chunk).slice(-STDERR_TAIL_CHARS)
  })
  const closed = stream && new Promise((resolve) => stream.once('close', resolve))
  return {
    text: () => tail,
    ended: () => Promise.race([closed, delay(LAST_WORDS_MS, undefined, { ref: false })]),
  }
}
