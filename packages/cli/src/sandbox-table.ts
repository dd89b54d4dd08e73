import type { SandboxInfo } from '@ash-ai/sdk'
import { sizeOf } from './quantities.ts'

/** What was used of the CPU before, by sandbox. */
export type CpuTimes = ReadonlyMap<string, { cpuMs: number; atMs: number }>

export const SANDBOX_HEADER = ['SANDBOX', 'STATE', 'SESSION', 'OF', 'CPU', 'MEMORY', 'PROCS', 'DISK', 'UP']

/** One row each. With earlier times CPU is a share of one core since then, else the time so far. */
export function sandboxRows(sandboxes: SandboxInfo[], nowMs: number, before?: CpuTimes): string[][] {
  return sandboxes.map((sandbox) => [
    sandbox.id,
    sandbox.state,
    sandbox.sessionId ?? '-',
    nameOf(sandbox),
    cpuOf(sandbox, nowMs, before),
    memoryOf(sandbox),
    countOf(sandbox),
    sandbox.usage?.diskBytes === undefined ? '-' : sizeOf(sandbox.usage.diskBytes),
    durationOf(sandbox.uptimeMs),
  ])
}

export function cpuTimes(sandboxes: SandboxInfo[], atMs: number): CpuTimes {
  return new Map(sandboxes.flatMap(({ id, usage }) => (usage ? [[id, { cpuMs: usage.cpuMs, atMs }]] : [])))
}

function nameOf({ agentName, agentVersion, template }: SandboxInfo): string {
  if (agentName !== undefined) return `${agentName}${agentVersion === undefined ? '' : `@${agentVersion}`}`
  return template ?? '-'
}

function cpuOf({ id, usage }: SandboxInfo, nowMs: number, before?: CpuTimes): string {
  if (usage === undefined) return '-'
  const earlier = before?.get(id)
  if (earlier === undefined || nowMs <= earlier.atMs) return `${(usage.cpuMs / 1000).toFixed(1)}s`
  return `${Math.round((100 * Math.max(0, usage.cpuMs - earlier.cpuMs)) / (nowMs - earlier.atMs))}%`
}

function memoryOf({ usage, limits }: SandboxInfo): string {
  if (usage === undefined) return '-'
  const used = sizeOf(usage.memoryBytes)
  return limits === undefined ? used : `${used} / ${limits.memoryMb} MB`
}

function countOf({ usage, limits }: SandboxInfo): string {
  if (usage === undefined) return '-'
  return limits === undefined ? String(usage.processes) : `${usage.processes}/${limits.processes}`
}

function durationOf(ms: number): string {
  const seconds = Math.floor(ms / 1000)
  if (seconds < 60) return `${seconds}s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return `${minutes}m ${seconds % 60}s`
  return `${Math.floor(minutes / 60)}h ${minutes % 60}m`
}
