import { release } from 'node:os'
import type { LimitBackend, LimitGroup, LimitHits } from './limit-backend.ts'
import type { ResourceLimits } from './resource-limits.ts'

/**
 * Without control groups: limits of single processes only. Memory and CPU of the whole tree are not limited;
 * the number of processes is, where each sandbox has a host user of its own or the kernel counts for each.
 */
export function createRlimitBackend(hasOwnUsers: boolean): LimitBackend {
  return {
    name: 'rlimit',
    enforcement: {
      memoryMb: 'none',
      cpus: 'none',
      processes: hasOwnUsers || countsByNamespace() ? 'hard' : 'none',
      openFiles: 'hard',
      fileSizeMb: 'hard',
    },
    create: async () => NO_GROUP,
    removeLeftovers: async () => {},
    close: async () => {},
  }
}

const NO_HITS: LimitHits = { oomKills: 0, processesRefused: 0 }

/** Holds nothing and counts nothing. */
export const NO_GROUP: LimitGroup = {
  entrance: undefined,
  add: async () => {},
  kill: async () => {},
  freeze: async () => false,
  thaw: () => {},
  pids: () => undefined,
  enclose: () => undefined,
  remove: async () => {},
  hits: () => NO_HITS,
  usage: async () => ({ memoryBytes: 0, peakMemoryBytes: 0, cpuMs: 0, processes: 0, ...NO_HITS }),
}

/** Arguments of `prlimit` that apply whatever else does; `processes` only where no control group counts them. */
export function prlimitArgs(limits: ResourceLimits, countsProcesses: boolean): string[] {
  return [
    '--core=0',
    `--nofile=${limits.openFiles}`,
    `--fsize=${limits.fileSizeMb * 1024 * 1024}`,
    ...(countsProcesses ? [`--nproc=${limits.processes}`] : []),
  ]
}

/** From 5.14 on the kernel counts the processes of a user namespace apart from those of the same user outside. */
export function countsByNamespace(kernel = release()): boolean {
  const [major = 0, minor = 0] = kernel.split('.').map((part) => Number.parseInt(part, 10))
  return major > 5 || (major === 5 && minor >= 14)
}
