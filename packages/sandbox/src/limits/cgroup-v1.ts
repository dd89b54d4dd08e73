import { access, constants } from 'node:fs/promises'
import { join } from 'node:path'
import {
  ignoreMissing,
  killPids,
  listGroups,
  makeGroup,
  readField,
  readFieldNow,
  readNumber,
  readPidsNow,
  removeGroup,
  signalPids,
  writeControl,
} from './cgroup-files.ts'
import { canFreeze, unifiedFreezer, v1Freezer } from './cgroup-freezer.ts'
import type { CgroupMounts } from './cgroup-mounts.ts'
import type { LimitBackend, LimitGroup } from './limit-backend.ts'
import { ALL_ENFORCED, type ResourceLimits } from './resource-limits.ts'

const PERIOD_US = 100_000
const NEEDED = ['memory', 'pids', 'cpu', 'freezer'] as const

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
    create: (id, limits) => createGroup(all, id, limits),
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

async function createGroup(
  parents: Record<string, string>,
  id: string,
  limits: ResourceLimits,
): Promise<LimitGroup> {
  const folder = (controller: string) => join(parents[controller] ?? '', id)
  const memoryBytes = limits.memoryMb * 1024 * 1024
  for (const controller of Object.keys(parents)) await makeGroup(folder(controller))
  await writeControl(folder('memory'), 'memory.limit_in_bytes', memoryBytes)
  // Memory and swap together: no swap on top. Kernels without swap accounting lack the file.
  await writeControl(folder('memory'), 'memory.memsw.limit_in_bytes', memoryBytes).catch(ignoreMissing)
  await writeControl(folder('memory'), 'memory.swappiness', 0).catch(ignoreMissing)
  await writeControl(folder('pids'), 'pids.max', limits.processes)
  await writeControl(folder('cpu'), 'cpu.cfs_period_us', PERIOD_US)
  await writeControl(folder('cpu'), 'cpu.cfs_quota_us', Math.round(limits.cpus * PERIOD_US))
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
    ...freezer,
    hits,
    pids: () => readPidsNow(folder('pids')),
    async add(pid) {
      for (const controller of Object.keys(parents))
        await writeControl(folder(controller), 'cgroup.procs', pid)
    },
    async usage() {
      const [memory, pids] = [folder('memory'), folder('pids')]
      return {
        memoryBytes: await readNumber(memory, 'memory.usage_in_bytes'),
        peakMemoryBytes: await readNumber(memory, 'memory.max_usage_in_bytes'),
        cpuMs: (await readField(folder('unified'), 'cpu.stat', 'usage_usec')) / 1000,
        processes: await readNumber(pids, 'pids.current'),
        ...hits(),
      }
    },
    async kill() {
      if (hasUnified) await writeControl(folder('unified'), 'cgroup.kill', 1).catch(ignoreMissing)
      signalPids(folder('pids')) // Before the thaw: nothing inside may run on.
      freezer.thaw()
      await killPids(folder('pids'))
    },
    async remove() {
      for (const controller of Object.keys(parents)) await removeGroup(folder(controller))
    },
  }
}

async function isWritable(folder: string): Promise<boolean> {
  return access(folder, constants.W_OK).then(
    () => true,
    () => false,
  )
}
