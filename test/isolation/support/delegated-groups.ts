import { chown, mkdir, readdir, rmdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { findCgroupMounts, type Owner } from '@ash-ai/sandbox'

/** What a limit back end needs, and what it uses beside it. */
const CONTROLLERS = ['memory', 'pids', 'cpu', 'freezer']

/** Control groups that root gave to another user. */
export interface DelegatedGroups {
  remove(): Promise<void>
}

const { v1, v2 } = await findCgroupMounts()

/** Whether this test can hand control groups to others: those of version 1 only, where a group may hold anything. */
export const canDelegateGroups =
  process.getuid?.() === 0 && CONTROLLERS.every((controller) => v1[controller] !== undefined)

/** Moves a server that has not started anything yet into groups below which it may make its own. */
export async function delegateGroups({ uid, gid }: Owner, pid: number): Promise<DelegatedGroups> {
  const parents = [...CONTROLLERS.map((controller) => v1[controller]), v2].filter((one) => one !== undefined)
  const folders = [...new Set(parents)].map((parent) => join(parent, `ash-delegated-${uid}`))
  for (const folder of folders) {
    await mkdir(folder)
    await chown(folder, uid, gid)
    await chown(join(folder, 'cgroup.procs'), uid, gid)
    await writeFile(join(folder, 'cgroup.procs'), String(pid))
  }
  return {
    async remove() {
      for (const folder of folders) await removeTree(folder)
    },
  }
}

async function removeTree(folder: string): Promise<void> {
  const entries = await readdir(folder, { withFileTypes: true })
  for (const entry of entries) if (entry.isDirectory()) await removeTree(join(folder, entry.name))
  // A group stays busy for a moment after its last process.
  for (let tries = 0; tries < 100; tries++) {
    const isGone = await rmdir(folder).then(
      () => true,
      () => false,
    )
    if (isGone) return
    await sleep(20)
  }
  throw new Error(`${folder} is still in use`)
}
