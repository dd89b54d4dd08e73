import { readFileSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'

const FIRST_CHECK_MS = 1
const LONGEST_CHECK_MS = 8

/** The first process inside a sandbox: with it goes everything in its pid namespace. */
interface InitProcess {
  pid: () => number | undefined
  /** Settles when the pid is there, or never will be. */
  isKnown: Promise<void>
  /** Whether bubblewrap has reported how the program ended, which it does only of one that it could run. */
  hasRun: () => boolean
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
      if (text.length < 4096) text += chunk.toString('latin1')
      if (found) return
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
    hasRun: () => status === undefined || /"exit-code"/.test(text),
    async end() {
      // Not given up: whoever hears of the end goes on to copy or delete what those inside could still change.
      let waitMs = FIRST_CHECK_MS
      while (found?.startedAt !== undefined && startTime(found.pid) === found.startedAt) {
        tryKill(found.pid)
        await delay(waitMs)
        waitMs = Math.min(waitMs * 2, LONGEST_CHECK_MS)
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
