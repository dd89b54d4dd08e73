import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  listGroups,
  makeGroup,
  readField,
  readNumber,
  readPids,
  removeGroup,
  writeControl,
} from './cgroup-files.ts'
import type { LimitBackend, LimitGroup } from './limit-backend.ts'
import { ALL_ENFORCED, type ResourceLimits } from './resource-limits.ts'

const PERIOD_US = 100_000
const CONTROLLERS = ['memory', 'pids', 'cpu'] as const

/**
 * Control groups of version 2. A group with processes cannot give controllers to children, so the server moves
 * itself into a leaf first. Undefined where the controllers are not this server's to give.
 */
export async function openCgroupV2(own: string, prefix: string): Promise<LimitBackend | undefined> {
  const parent = join(own, prefix)
  try {
    const available = (await readFile(join(own, 'cgroup.controllers'), 'utf8')).trim().split(' ')
    if (!CONTROLLERS.every((controller) => available.includes(controller))) return undefined
    await moveSelfToLeaf(own, `${prefix}-server`)
    await enableControllers(own)
    await makeGroup(parent)
    await enableControllers(parent)
  } catch {
    return undefined
  }
  return {
    name: 'cgroup-v2',
    enforcement: ALL_ENFORCED,
    create: (id, limits) => createGroup(join(parent, id), limits),
    removeLeftovers: async () => {
      for (const id of await listGroups(parent)) {
        const group = groupOf(join(parent, id))
        await group.kill()
        await group.remove()
      }
    },
    close: () => removeGroup(parent),
  }
}

/** The root group has no such rule, and nothing there may be moved. */
async function moveSelfToLeaf(own: string, leaf: string): Promise<void> {
  const isRoot = await readFile(join(own, 'cgroup.type'), 'utf8').then(
    () => false,
    () => true,
  )
  if (isRoot) return
  await makeGroup(join(own, leaf))
  for (const pid of await readPids(own)) await writeControl(join(own, leaf), 'cgroup.procs', pid)
}

async function enableControllers(folder: string): Promise<void> {
  await writeControl(folder, 'cgroup.subtree_control', CONTROLLERS.map((name) => `+${name}`).join(' '))
}

async function createGroup(folder: string, limits: ResourceLimits): Promise<LimitGroup> {
  await makeGroup(folder)
  await writeControl(folder, 'memory.max', limits.memoryMb * 1024 * 1024)
  await writeControl(folder, 'memory.swap.max', 0).catch(() => {}) // Absent in kernels without swap.
  await writeControl(folder, 'pids.max', limits.processes)
  await writeControl(folder, 'cpu.max', `${Math.round(limits.cpus * PERIOD_US)} ${PERIOD_US}`)
  return groupOf(folder)
}

function groupOf(folder: string): LimitGroup {
  return {
    add: (pid) => writeControl(folder, 'cgroup.procs', pid),
    setFrozen: (isFrozen) => writeControl(folder, 'cgroup.freeze', isFrozen ? 1 : 0),
    kill: () => writeControl(folder, 'cgroup.kill', 1),
    remove: () => removeGroup(folder),
    async usage() {
      return {
        memoryBytes: await readNumber(folder, 'memory.current'),
        peakMemoryBytes: await readNumber(folder, 'memory.peak'),
        cpuMs: (await readField(folder, 'cpu.stat', 'usage_usec')) / 1000,
        processes: await readNumber(folder, 'pids.current'),
        oomKills: await readField(folder, 'memory.events', 'oom_kill'),
        processesRefused: await readField(folder, 'pids.events', 'max'),
      }
    },
  }
}
