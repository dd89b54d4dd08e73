import type { SandboxProcess } from '../provider.ts'
import type { DiskState } from './disk/disk-backend.ts'
import type { ResourceLimits } from './resource-limits.ts'

const POLL_MS = 1_000
/** Repeats of the same hit within this time are one. */
const COALESCE_MS = 10_000
/** A process that dies this soon after the kernel killed for memory died of that. */
const JUST_NOW_MS = 5_000

/** A limit that was met. */
export interface LimitHit {
  code: 'oom_killed' | 'process_limit' | 'disk_full' | 'output_limit'
  resource: keyof ResourceLimits
  limit: number
  /** How often since the last report. */
  count: number
}

/** Where the watch reads what was used. */
type Counters = Pick<SandboxProcess, 'hits'> & {
  diskState(): Promise<DiskState>
  /** How often the sandbox sent more than its rate. */
  outputExcesses(): number
}

/** Reports a process killed for memory, a fork refused, a disk that has no room left, output that was slowed down. */
export class LimitWatch {
  readonly #counters: Counters
  readonly #memory: Counter
  readonly #processes: Counter
  readonly #disk: Counter
  readonly #output: Counter
  /** How often the disk became full, and whether it was when last looked at. */
  #fills = 0
  #isFull = false
  readonly #timer: NodeJS.Timeout

  constructor(counters: Counters, limits: ResourceLimits, report: (hit: LimitHit) => void = () => {}) {
    this.#counters = counters
    this.#memory = new Counter({ code: 'oom_killed', resource: 'memoryMb', limit: limits.memoryMb }, report)
    this.#processes = new Counter(
      { code: 'process_limit', resource: 'processes', limit: limits.processes },
      report,
    )
    this.#disk = new Counter({ code: 'disk_full', resource: 'diskMb', limit: limits.diskMb }, report)
    this.#output = new Counter(
      { code: 'output_limit', resource: 'outputMbPerSecond', limit: limits.outputMbPerSecond },
      report,
    )
    // What cannot be read now is read the next time; the end of a sandbox is told elsewhere.
    this.#timer = setInterval(() => this.#poll().catch(() => {}), POLL_MS).unref()
  }

  /** Whether the kernel has just killed something here for memory. */
  async hasJustKilled(): Promise<boolean> {
    await this.#poll()
    return performance.now() - this.#memory.lastChangeMs < JUST_NOW_MS
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  async #poll(): Promise<void> {
    this.#output.update(this.#counters.outputExcesses())
    const { oomKills, processesRefused } = this.#counters.hits()
    this.#memory.update(oomKills)
    this.#processes.update(processesRefused)
    const isFull = (await this.#counters.diskState()) !== 'ok'
    if (isFull && !this.#isFull) this.#fills++
    this.#isFull = isFull
    this.#disk.update(this.#fills)
  }
}

class Counter {
  lastChangeMs = Number.NEGATIVE_INFINITY
  readonly #hit: Omit<LimitHit, 'count'>
  readonly #report: (hit: LimitHit) => void
  #total = 0
  #reported = 0
  #lastReportMs = Number.NEGATIVE_INFINITY

  constructor(hit: Omit<LimitHit, 'count'>, report: (hit: LimitHit) => void) {
    this.#hit = hit
    this.#report = report
  }

  update(total: number): void {
    const now = performance.now()
    if (total > this.#total) this.lastChangeMs = now
    this.#total = Math.max(this.#total, total)
    if (this.#total === this.#reported || now - this.#lastReportMs < COALESCE_MS) return
    this.#report({ ...this.#hit, count: this.#total - this.#reported })
    this.#reported = this.#total
    this.#lastReportMs = now
  }
}
