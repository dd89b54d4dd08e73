import type { RunUsage } from '@ash-ai/shared'
import {
  hasMark,
  type ProcessEntry,
  readChildren,
  readIfThere,
  readProcess,
  readProcesses,
} from './process-table.ts'

const TICK_MS = 10
/** What forks while it is being stopped is found again; this often. */
const STOP_ROUNDS = 20
const KILL_ROUNDS = 5
const GONE_TIMEOUT_MS = 2_000
const GONE_POLL_MS = 1

/**
 * A process and everything it started: its group and session, those that descend from it, those it left behind that
 * carry its mark, and those that were seen to belong to it before. What clears its environment and leaves before
 * it is seen gets away; only a control group holds that.
 */
export class ProcessTree {
  readonly #pid: number
  /** A variable in the environment of each of them, such as `NAME=value`. */
  readonly #mark: string
  readonly #startTime: string | undefined
  /** Number and beginning of those seen last. */
  #seen = new Map<number, string>()
  #used: RunUsage | undefined

  constructor(pid: number, mark: string) {
    this.#pid = pid
    this.#mark = mark
    this.#startTime = readProcess(pid)?.startTime
  }

  /** What all of them have used so far; of a tree that is gone, what was seen last. */
  measure(): RunUsage | undefined {
    const members = this.#family()
    this.#seen = new Map(members.map(({ pid, startTime }) => [pid, startTime]))
    if (members.length === 0) return this.#used
    const now = sumUsage(members)
    const { cpuMs = 0, peakMemoryBytes = 0, ioReadBytes = 0, ioWriteBytes = 0 } = this.#used ?? {}
    // Whatever has left the tree is not to be seen any more, but was used.
    this.#used = {
      cpuMs: Math.max(cpuMs, now.cpuMs),
      peakMemoryBytes: Math.max(peakMemoryBytes, now.peakMemoryBytes),
      ioReadBytes: Math.max(ioReadBytes, now.ioReadBytes),
      ioWriteBytes: Math.max(ioWriteBytes, now.ioWriteBytes),
    }
    return this.#used
  }

  /** Kills all of them; resolves when they are gone, or when they have had time enough. */
  async kill(): Promise<void> {
    for (let round = 0; round < KILL_ROUNDS; round++) {
      const members = this.#stopAll()
      if (members.length === 0) return
      signalAll(members, 'SIGKILL')
      await this.#areGone(members)
    }
  }

  /** Stopped first: what does not run cannot fork while the others are being killed. */
  #stopAll(): ProcessEntry[] {
    const stopped = new Set<string>()
    for (let round = 0; ; round++) {
      const members = this.#members()
      const running = members.filter((one) => !stopped.has(identity(one)))
      if (running.length === 0 || round === STOP_ROUNDS) return members
      signalAll(running, 'SIGSTOP')
      for (const one of running) {
        stopped.add(identity(one))
        this.#seen.set(one.pid, one.startTime)
      }
    }
  }

  async #areGone(members: ProcessEntry[]): Promise<void> {
    const untilMs = performance.now() + GONE_TIMEOUT_MS
    const isThere = (one: ProcessEntry) => readProcess(one.pid)?.startTime === one.startTime
    while (members.some(isThere) && performance.now() < untilMs) {
      await new Promise((resolve) => setTimeout(resolve, GONE_POLL_MS))
    }
  }

  /** Everything that can be found; looks at every process there is. */
  #members(): ProcessEntry[] {
    const all = readProcesses().filter(({ pid }) => pid !== 1 && pid !== process.pid)
    const root = all.find(({ pid }) => pid === this.#pid)
    // Once it is gone its number may be somebody else's; a group or session that still has it cannot.
    const isReused = root !== undefined && root.startTime !== this.#startTime
    const isOwn = (one: ProcessEntry) =>
      this.#seen.get(one.pid) === one.startTime ||
      (!isReused && (one.pid === this.#pid || one.group === this.#pid || one.session === this.#pid)) ||
      hasMark(one.pid, this.#mark)
    return withDescendants(all.filter(isOwn), all)
  }

  /** Those that descend from it, and those that did when they were seen; looks at no others. */
  #family(): ProcessEntry[] {
    const known = new Map(this.#seen)
    if (this.#startTime !== undefined) known.set(this.#pid, this.#startTime)
    const members = new Map<number, ProcessEntry>()
    for (const [pid, startTime] of known) {
      const entry = readProcess(pid)
      if (entry?.startTime === startTime) members.set(pid, entry)
    }
    for (const pid of members.keys()) {
      for (const child of readChildren(pid)) {
        const entry = members.has(child) ? undefined : readProcess(child)
        if (entry) members.set(child, entry)
      }
    }
    return [...members.values()]
  }
}

const identity = ({ pid, startTime }: ProcessEntry) => `${pid}:${startTime}`

function withDescendants(members: ProcessEntry[], all: ProcessEntry[]): ProcessEntry[] {
  const children = Map.groupBy(all, ({ parent }) => parent)
  const found = new Set(members)
  for (const one of found) for (const child of children.get(one.pid) ?? []) found.add(child)
  return [...found]
}

function signalAll(members: ProcessEntry[], signal: 'SIGSTOP' | 'SIGKILL'): void {
  for (const { pid } of members) {
    try {
      process.kill(pid, signal)
    } catch {
      // Gone meanwhile, or not ours to kill.
    }
  }
}

function sumUsage(members: ProcessEntry[]): RunUsage {
  const usage = { cpuMs: 0, peakMemoryBytes: 0, ioReadBytes: 0, ioWriteBytes: 0 }
  for (const { pid, cpuTicks } of members) {
    const io = readIfThere(`/proc/${pid}/io`)
    const peakBytes = 1024 * field(readIfThere(`/proc/${pid}/status`), 'VmHWM')
    usage.cpuMs += cpuTicks * TICK_MS
    usage.peakMemoryBytes = Math.max(usage.peakMemoryBytes, peakBytes)
    usage.ioReadBytes += field(io, 'rchar')
    usage.ioWriteBytes += field(io, 'wchar')
  }
  return usage
}

const field = (text: string | undefined, name: string) =>
  Number(new RegExp(`^${name}:\\s*(\\d+)`, 'm').exec(text ?? '')?.[1] ?? 0)
