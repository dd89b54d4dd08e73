import { readFileSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'

const GONE_CHECK_MS = 5

/** The first process inside a sandbox: with it goes everything in its pid namespace. */
interface InitProcess {
  pid: () => number | undefined
  /** Settles when the pid is there, or never will be. */
  isKnown: Promise<void>
  /** Kills it and waits until it, and so everything inside, has ended. */
  end(): Promise<void>
}

/** Reads its pid from what bubblewrap reports. */
export function readInitProcess(status: Readable | undefined): InitProcess {
  let text = ''
  let found: { pid: number; startedAt: string | undefined } | undefined
  const isKnown = new Promise<void>((resolve) => {
    if (!status) return resolve()
    status.on('data', (chunk: Buffer) => {
      if (found) return
      if (text.length < 4096) text += chunk.toString('latin1')
      const digits = /"child-pid"\s*:\s*(\d+)/.exec(text)?.[1]
      if (digits === undefined) return
      found = { pid: Number(digits), startedAt: startTime(Number(digits)) }
      resolve()
    })
    status.on('close', resolve).on('error', () => {})
  })
  return {
    pid: () => found?.pid,
    isKnown,
    async end() {
      // Not given up: whoever hears of the end goes on to copy or delete what those inside could still change.
      while (found?.startedAt !== undefined && startTime(found.pid) === found.startedAt) {
        tryKill(found.pid)
        await delay(GONE_CHECK_MS)
      }
    },
  }
}

export function tryKill(pid: number): boolean {
  try {
    return process.kill(pid, 'SIGKILL')
  } catch {
    return false
  }
}

/** Tells a process from a later one with its pid. Undefined where it has ended, though it may still be listed. */
function startTime(pid: number): string | undefined {
  try {
    // pid (name) state …, where a name may hold anything; the start is field 22.
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19]
  } catch {
    return undefined
  }
}
