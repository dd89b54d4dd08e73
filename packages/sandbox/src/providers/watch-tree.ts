import type { ChildProcess } from 'node:child_process'
import type { Duplex, Writable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { AshError } from '@ash-ai/shared'
import type { LimitGroup, ResourceUsage } from '../limits/limit-backend.ts'
import type { ProcessExit, ProcessTree } from '../provider.ts'
import { readInitProcess, tryKill } from './init-process.ts'

/** How long a kill waits for the pid of a sandbox's init, which a starting bubblewrap tells within milliseconds. */
const INIT_PID_MS = 2_000

export interface Descriptors {
  /** Where bubblewrap reports the pid of the sandbox's init. */
  statusFd?: number
  /** Descriptor → bytes the child reads from it before anything else. */
  inputs?: Record<number, string | Buffer>
  /** What the child waits for before it runs anything. */
  blockFd?: number
  /** The child has put itself under its limits. */
  isInside?: boolean
}

export interface WatchedTree extends ProcessTree {
  /** At once when the child has ended; what it left behind may still be running. */
  ended: Promise<ProcessExit>
  /** Also what it left behind is gone, and so are the limits. */
  exited: Promise<ProcessExit>
  /** The first process inside; the child itself where there is no inside. */
  rootPid: number
  /** Whether bubblewrap got as far as to run the program. Known when it has ended. */
  hasRun(): boolean
}

/**
 * Watches a spawned child: under its limits before it runs, with its end and a kill that waits for the whole tree.
 * The limits go with it, after `lastWords`.
 */
export async function watchTree(
  child: ChildProcess,
  fds: Descriptors,
  group: LimitGroup,
  lastWords: () => Promise<unknown> = async () => {},
): Promise<WatchedTree> {
  const init = readInitProcess(streamOf(child, fds.statusFd))
  const ended = Promise.withResolvers<ProcessExit>()
  const gone = Promise.withResolvers<void>()
  let atEnd: ResourceUsage | undefined
  const exited = new Promise<ProcessExit>((resolve) => {
    child.once('exit', async (code, signal) => {
      atEnd = await group.usage()
      const exit = { code, signal, usage: atEnd }
      ended.resolve(exit)
      await lastWords()
      await group.kill()
      // bwrap leaves when its program ends; the kernel then kills its init, which takes as long as it takes.
      await init.end()
      gone.resolve()
      // A group that cannot be removed is found again by the next start of the server.
      await group.remove().catch(() => {})
      resolve(exit)
    })
  })
  await spawned(child)
  for (const [fd, bytes] of Object.entries(fds.inputs ?? {})) {
    const input = streamOf(child, Number(fd)) as Writable | undefined
    input?.on('error', () => {}) // A child that died early says so by its exit.
    input?.end(bytes)
  }
  await Promise.race([init.isKnown, exited])
  const rootPid = init.pid() ?? child.pid ?? 0
  const placed = (fds.isInside ? group.entrance?.settle(child.pid ?? 0) : group.add(rootPid))?.catch(
    (error: NodeJS.ErrnoException) => {
      // Dead already, as its exit says; its group may be gone as well.
      if (error.code === 'ESRCH' || child.exitCode !== null || child.signalCode !== null) return
      tryKill(rootPid)
      throw error
    },
  )
  // Under its limits it is either way. What only holds it together may come while it starts.
  if (!fds.isInside) await placed
  const settled = Promise.resolve(placed).catch(() => {}) // What fails has killed it.
  const block = streamOf(child, fds.blockFd) as Writable | undefined
  block?.on('error', () => {})
  block?.end('\0')
  return {
    pid: child.pid ?? 0,
    rootPid,
    ended: ended.promise,
    exited,
    settled,
    // One that fails exits; killed, it has no time to tell.
    hasRun: () => child.signalCode !== null || init.hasRun(),
    usage: async () => atEnd ?? group.usage(),
    hits: () => atEnd ?? group.hits(),
    pids: () => group.pids(),
    enclose: (name, hostPid) => group.enclose(name, hostPid),
    freeze: async () => {
      await settled // Outside of the group that freezes, a part of it would run on.
      return group.freeze()
    },
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
      await group.kill(child.pid)
      await gone.promise
    },
  }
}

export function streamOf(child: ChildProcess, fd: number | undefined): Duplex | undefined {
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
