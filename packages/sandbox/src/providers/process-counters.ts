import { readdirSync, readFileSync } from 'node:fs'
import type { RunUsage } from '@ash-ai/shared'

/** Of a tree that is larger, only so many are counted. */
const MAX_PROCESSES = 256
/** What `/proc` counts CPU time in, on every architecture. */
const TICK_MS = 10

/**
 * Sums up what `/proc` tells of processes, each with those of its children that have ended. At once: it is asked
 * right before they are killed.
 */
export function countProcesses(pids: number[]): RunUsage {
  const all = pids.slice(0, MAX_PROCESSES).map(countProcess)
  const sum = (field: keyof RunUsage) => all.reduce((total, one) => total + one[field], 0)
  return {
    cpuMs: sum('cpuMs'),
    peakMemoryBytes: Math.max(0, ...all.map(({ peakMemoryBytes }) => peakMemoryBytes)),
    ioReadBytes: sum('ioReadBytes'),
    ioWriteBytes: sum('ioWriteBytes'),
  }
}

/** A process and all below it, where no control group lists them. */
export function listTreeNow(root: number): number[] {
  const found = [root]
  for (const pid of found) {
    if (found.length >= MAX_PROCESSES) break
    for (const child of childrenOf(pid)) if (!found.includes(child)) found.push(child)
  }
  return found
}

function countProcess(pid: number): RunUsage {
  const io = read(pid, 'io')
  return {
    cpuMs: cpuTicks(read(pid, 'stat')) * TICK_MS,
    peakMemoryBytes: field(read(pid, 'status'), 'VmHWM') * 1024,
    ioReadBytes: field(io, 'rchar'),
    ioWriteBytes: field(io, 'wchar'),
  }
}

/** In user mode and in the kernel, its own and that of children that it has waited for: fields 14 to 17. */
function cpuTicks(stat: string): number {
  // pid (name) state …, where a name may hold anything.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return fields.slice(11, 15).reduce((total, ticks) => total + (Number(ticks) || 0), 0)
}

const field = (text: string, name: string) =>
  Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(text)?.[1] ?? 0)

function childrenOf(pid: number): number[] {
  try {
    const threads = readdirSync(`/proc/${pid}/task`)
    return threads.flatMap((thread) =>
      read(pid, `task/${thread}/children`).split(' ').filter(Boolean).map(Number),
    )
  } catch {
    return []
  }
}

function read(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'latin1')
  } catch {
    return '' // Gone, not ours to read, or not Linux.
  }
}
