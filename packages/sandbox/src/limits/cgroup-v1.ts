import { access, constants } from 'node:fs/promises'
import { join } from 'node:path'
import {
  ignoreMissing,
  killPids,
  listGroups,
  makeGroup,
  readFieldNow,
  readNumberNow,
  readPidsNow,
  removeGroup,
  signalPids,
  writeControl,
  writeControlNow,
  writeWhereOffered,
} from './cgroup-files.ts'
import { canFreeze, unifiedFreezer, v1Freezer } from './cgroup-freezer.ts'
import type { CgroupMounts } from './cgroup-mounts.ts'
import { encloseBelow } from './enclosure.ts'
import type { LimitBackend, LimitGroup } from './limit-backend.ts'
import { ALL_ENFORCED, type ResourceLimits } from './resource-limits.ts'

const PERIOD_US = 100_000
const NEEDED = ['memory', 'pids', 'cpu', 'freezer'] as const
const MOVE_ROUNDS = 20

/**
 * Control groups of version 1, and beside them, where the system mounts it, an empty group of version 2: that
 * kills and freezes a whole tree at once. Undefined where the server may not make groups.
 */
export async function openCgroupV1(mounts: CgroupMounts, prefix: string): Promise<LimitBackend | undefined> {
  const parents: Record<string, string> = {}
  for (const controller of NEEDED) {
    const own = mounts.v1[controller]
    if (own === undefined || !(await isWritable(own))) return undefined
    parents[controller] = join(own, prefix)
  }
  const unified = mounts.v2 && (await isWritable(mounts.v2)) ? join(mounts.v2, prefix) : undefined
  const all: Record<string, string> = { ...parents, ...(unified !== undefined && { unified }) }
  return {
    name: 'cgroup-v1',
    enforcement: ALL_ENFORCED,
    create: async (id, limits) => createGroup(all, id, limits),
    removeLeftovers: async () => {
      // In whichever hierarchy: a server may be killed while it makes or removes a group.
      const ids = new Set((await Promise.all(Object.values(all).map(listGroups))).flat())
      for (const id of ids) {
        await groupOf(all, id).kill()
        await groupOf(all, id).remove()
      }
    },
    close: async () => {
      for (const folder of Object.values(all)) await removeGroup(folder)
    },
  }
}

/** At once: a handful of small writes, of which each would wait longer for a thread than for the kernel. */
function createGroup(parents: Record<string, string>, id: string, limits: ResourceLimits): LimitGroup {
  const folder = (controller: string) => join(parents[controller] ?? '', id)
  const memoryBytes = limits.memoryMb * 1024 * 1024
  for (const controller of Object.keys(parents)) makeGroup(folder(controller))
  writeControlNow(folder('memory'), 'memory.limit_in_bytes', memoryBytes)
  // Memory and swap together: no swap on top. Kernels without swap accounting lack the file.
  writeWhereOffered(folder('memory'), 'memory.memsw.limit_in_bytes', memoryBytes)
  writeWhereOffered(folder('memory'), 'memory.swappiness', 0)
  writeControlNow(folder('pids'), 'pids.max', limits.processes)
  writeControlNow(folder('cpu'), 'cpu.cfs_period_us', PERIOD_US)
  writeControlNow(folder('cpu'), 'cpu.cfs_quota_us', Math.round(limits.cpus * PERIOD_US))
  return groupOf(parents, id)
}

function groupOf(parents: Record<string, string>, id: string): LimitGroup {
  const folder = (controller: string) => join(parents[controller] ?? '', id)
  const hasUnified = parents.unified !== undefined
  const freezer =
    hasUnified && canFreeze(folder('unified'))
      ? unifiedFreezer(folder('unified'))
      : v1Freezer(folder('freezer'))
  const hits = () => ({
    oomKills: readFieldNow(folder('memory'), 'memory.oom_control', 'oom_kill'),
    processesRefused: readFieldNow(folder('pids'), 'pids.events', 'max'),
  })
  return {
    entrance: {
      files: NEEDED.map((controller) => join(folder(controller), 'tasks')),
      settle: async (entered) => {
        if (hasUnified) await moveRest(folder('pids'), folder('unified'), entered)
      },
    },
    ...freezer,
    hits,
    pids: () => readPidsNow(folder('pids')),
    async add(pid) {
      for (const controller of Object.keys(parents))
        await writeControl(folder(controller), 'cgroup.procs', pid)
    },
    usage: async () => ({
      memoryBytes: readNumberNow(folder('memory'), 'memory.usage_in_bytes'),
      peakMemoryBytes: readNumberNow(folder('memory'), 'memory.max_usage_in_bytes'),
      cpuMs: readFieldNow(folder('unified'), 'cpu.stat', 'usage_usec') / 1000,
      processes: readNumberNow(folder('pids'), 'pids.current'),
      ...hits(),
    }),
    enclose: (name, hostPid) => (hasUnified ? encloseBelow(folder('unified'), name, hostPid) : undefined),
    async kill(entered) {
      if (hasUnified) await writeControl(folder('unified'), 'cgroup.kill', 1).catch(ignoreMissing)
      signalPids(folder('pids'), entered) // Before the thaw: nothing inside may run on.
      freezer.thaw()
      await killPids(folder('pids'), entered)
    },
    async remove() {
      for (const controller of Object.keys(parents)) await removeGroup(folder(controller))
    },
  }
}

/** Moves the others of one group into another as well; again while there are more, which may be forked meanwhile. */
async function moveRest(from: string, to: string, entered: number): Promise<void> {
  for (let round = 0; round < MOVE_ROUNDS; round++) {
    const moved = new Set(readPidsNow(to)).add(entered)
    const left = (readPidsNow(from) ?? []).filter((pid) => !moved.has(pid))
    if (left.length === 0) return
    for (const pid of left) await writeControl(to, 'cgroup.procs', pid).catch(ignoreEnded)
  }
  throw new Error(`processes stay outside of ${to}`)
}

function ignoreEnded(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ESRCH') throw error
}

async function isWritable(folder: string): Promise<boolean> {
  return access(folder, constants.W_OK).then(
    () => true,
    () => false,
  )
}
