import { readFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import {
  ignoreMissing,
  killPids,
  listGroups,
  makeGroup,
  readFieldNow,
  readNumberNow,
  readPids,
  readPidsNow,
  removeGroup,
  writeControl,
  writeControlNow,
  writeWhereOffered,
} from './cgroup-files.ts'
import { unifiedFreezer } from './cgroup-freezer.ts'
import { moveExpecter } from './cgroup-moves.ts'
import { encloseBelow } from './enclosure.ts'
import type { LimitBackend, LimitGroup } from './limit-backend.ts'
import { ALL_ENFORCED, type ResourceLimits } from './resource-limits.ts'

const PERIOD_US = 100_000
const CONTROLLERS = ['memory', 'pids', 'cpu'] as const
/** The leaf into which servers move, with whatever was in their group. */
const SERVERS = 'ash-servers'
const MOVE_TRIES = 100

/**
 * Control groups of version 2. A group with processes cannot give controllers to children, so the server moves
 * itself into a leaf first. Undefined where the controllers are not this server's to give.
 */
export async function openCgroupV2(current: string, prefix: string): Promise<LimitBackend | undefined> {
  // The shell that started a server was moved with it, so the next server begins in the leaf; what an earlier one
  // left behind is beside it.
  const own = basename(current) === SERVERS ? dirname(current) : current
  const parent = join(own, prefix)
  let leaf: string
  try {
    const available = (await readFile(join(own, 'cgroup.controllers'), 'utf8')).trim().split(' ')
    if (!CONTROLLERS.every((controller) => available.includes(controller))) return undefined
    leaf = await moveToLeaf(own)
    await enableControllers(own)
    makeGroup(parent)
    await enableControllers(parent)
  } catch {
    return undefined
  }
  const expectMove = moveExpecter(leaf)
  return {
    name: 'cgroup-v2',
    enforcement: ALL_ENFORCED,
    create: async (id, limits) => {
      const group = createGroup(join(parent, id), limits)
      expectMove() // Not before: while it waits, the kernel makes no groups.
      return group
    },
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

/** Where the server is then. The root group has no such rule, and nothing there may be moved. */
async function moveToLeaf(own: string): Promise<string> {
  const isRoot = await readFile(join(own, 'cgroup.type'), 'utf8').then(
    () => false,
    () => true,
  )
  if (isRoot) return own
  const leaf = join(own, SERVERS)
  makeGroup(leaf)
  // Again until none is left: one may end before it is moved, or fork meanwhile.
  for (let tries = 0; tries < MOVE_TRIES; tries++) {
    const pids = await readPids(own)
    if (pids.length === 0) return leaf
    for (const pid of pids) await writeControl(leaf, 'cgroup.procs', pid).catch(ignoreEnded)
  }
  throw new Error(`processes stay in ${own}`)
}

function ignoreEnded(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ESRCH') throw error
}

async function enableControllers(folder: string): Promise<void> {
  await writeControl(folder, 'cgroup.subtree_control', CONTROLLERS.map((name) => `+${name}`).join(' '))
}

/** At once: a handful of small writes, of which each would wait longer for a thread than for the kernel. */
function createGroup(folder: string, limits: ResourceLimits): LimitGroup {
  makeGroup(folder)
  writeControlNow(folder, 'memory.max', limits.memoryMb * 1024 * 1024)
  writeWhereOffered(folder, 'memory.swap.max', 0) // Absent in kernels without swap.
  writeControlNow(folder, 'pids.max', limits.processes)
  writeControlNow(folder, 'cpu.max', `${Math.round(limits.cpus * PERIOD_US)} ${PERIOD_US}`)
  return groupOf(folder)
}

function groupOf(folder: string): LimitGroup {
  const hits = () => ({
    oomKills: readFieldNow(folder, 'memory.events', 'oom_kill'),
    processesRefused: readFieldNow(folder, 'pids.events', 'max'),
  })
  return {
    entrance: undefined,
    hits,
    add: (pid) => writeControl(folder, 'cgroup.procs', pid),
    ...unifiedFreezer(folder),
    pids: () => readPidsNow(folder),
    async kill() {
      await writeControl(folder, 'cgroup.kill', 1).catch(ignoreMissing)
      await killPids(folder) // Kernels before 5.14 lack the file.
    },
    enclose: (name, hostPid) => encloseBelow(folder, name, hostPid),
    remove: () => removeGroup(folder),
    usage: async () => ({
      memoryBytes: readNumberNow(folder, 'memory.current'),
      peakMemoryBytes: readNumberNow(folder, 'memory.peak'),
      cpuMs: readFieldNow(folder, 'cpu.stat', 'usage_usec') / 1000,
      processes: readNumberNow(folder, 'pids.current'),
      ...hits(),
    }),
  }
}
