import type { RunEnd, RunError, RunMetrics, RunOutcome, RunRequest } from './interpreter.ts'

/** How a process ended. */
export interface ProcessExit {
  code: number | null
  signal: string | null
}

/** What ended a run. `broken`: something inside wrote to the channel of the results, or closed it. */
export type RunCause = 'done' | 'exit' | 'broken' | 'timeout' | 'stop'

export interface RunFacts {
  cause: RunCause
  isShell: boolean
  /** Somebody asked for its end. */
  isCancelled: boolean
  end?: RunEnd | undefined
  exit?: ProcessExit | undefined
}

type Verdict = Pick<RunOutcome, 'status' | 'error' | 'exitCode' | 'signal'>

/** What became of a run. */
export function judgeRun(facts: RunFacts): Verdict {
  const { cause, isCancelled, end } = facts
  if (cause === 'timeout') return { status: 'timeout' }
  if (cause === 'broken' && !isCancelled) return { status: 'failed', error: brokenChannel() }
  const verdict = cause === 'done' ? judgeEnd(end ?? {}) : cause === 'exit' ? judgeExit(facts) : undefined
  if (verdict === undefined) return { status: 'cancelled', ...(end?.error && { error: end.error }) }
  return isCancelled ? { ...verdict, status: 'cancelled' } : verdict
}

export function brokenChannel(): RunError {
  return {
    name: 'ResultChannelBroken',
    message: 'The channel of the results was closed, or written to, by something other than the interpreter',
  }
}

/** Whether a run ends with its process: a program does, and so does every shell. */
export const endsWithProcess = (isShell: boolean, { kind }: RunRequest) => isShell || kind === 'script'

/** What was used between two measurements; the peak is the process's own. */
export function usedBetween(before: RunUsage, after: RunUsage): RunUsage {
  const between = (key: keyof RunUsage) => Math.max(0, amount(after[key]) - amount(before[key]))
  return {
    cpuMs: between('cpuMs'),
    peakMemoryBytes: amount(after.peakMemoryBytes),
    ioReadBytes: between('ioReadBytes'),
    ioWriteBytes: between('ioWriteBytes'),
  }
}

/** What a process has used since it began. */
export type RunUsage = Omit<RunMetrics, 'wallMs'>
export const NO_USAGE: RunUsage = { cpuMs: 0, peakMemoryBytes: 0, ioReadBytes: 0, ioWriteBytes: 0 }

/** The larger of each: of a process that is gone there may be less to see than of one that was there. */
export function mostUsed(one: RunUsage, other: RunUsage): RunUsage {
  const most = (key: keyof RunUsage) => Math.max(amount(one[key]), amount(other[key]))
  return {
    cpuMs: most('cpuMs'),
    peakMemoryBytes: most('peakMemoryBytes'),
    ioReadBytes: most('ioReadBytes'),
    ioWriteBytes: most('ioWriteBytes'),
  }
}

const amount = (value: number) => (Number.isFinite(value) && value > 0 ? value : 0)

function judgeEnd({ error, exitCode }: RunEnd): Verdict {
  const code = exitCode === undefined ? {} : { exitCode }
  if (error !== undefined) return { status: 'failed', error, ...code }
  return exitCode ? { status: 'failed', error: exited(exitCode), ...code } : { status: 'completed', ...code }
}

function judgeExit({ isShell, end, exit }: RunFacts): Verdict {
  const { code, signal } = exit ?? { code: null, signal: null }
  if (signal !== null || code === null) {
    const by = signal ?? 'an unknown signal'
    const error = { name: 'Killed', message: `The process was ended by ${by}` }
    return { status: 'failed', error: end?.error ?? error, ...(signal !== null && { signal }) }
  }
  if (end === undefined && !isShell) return { status: 'failed', error: endedEarly(code), exitCode: code }
  if (end?.error !== undefined) return { status: 'failed', error: end.error, exitCode: code }
  if (code !== 0) return { status: 'failed', error: exited(code), exitCode: code }
  return { status: 'completed', exitCode: 0 }
}

const exited = (code: number): RunError => ({
  name: 'Exit',
  message: `The code ended with exit code ${code}`,
})

const endedEarly = (code: number): RunError => ({
  name: 'ProcessExited',
  message: `The process ended with exit code ${code} before the code did`,
})
