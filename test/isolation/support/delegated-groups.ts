import { chown, mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { chooseLimits, findCgroupMounts, type Owner } from '@ash-ai/sandbox'

/** What a limit back end needs, and what it uses beside it. */
const V1_CONTROLLERS = ['memory', 'pids', 'cpu', 'freezer']
const V2_CONTROLLERS = ['memory', 'pids', 'cpu']
/** So wide that only the limits of the sandboxes below are met. */
const WIDE = { memoryMb: 1024 * 1024, processes: 100_000, cpus: 1000 }
const UNUSED = { openFiles: 0, fileSizeMb: 0, diskMb: 0, outputMbPerSecond: 0 }

/** Control groups that root gave to another user. */
export interface DelegatedGroups {
  remove(): Promise<void>
}

const { v1, v2 } = await findCgroupMounts()
const isPureV2 = v2 !== undefined && Object.keys(v1).length === 0

/** Whether this test can hand control groups to others. */
export const canDelegateGroups =
  process.getuid?.() === 0 && (isPureV2 ? await hasV2Controllers(v2) : hasV1Controllers())

/** Moves a server that has not started anything yet into groups below which it may make its own. */
export function delegateGroups(owner: Owner, pid: number): Promise<DelegatedGroups> {
  return isPureV2 ? delegateV2(owner, pid) : delegateV1(owner, pid)
}

function hasV1Controllers(): boolean {
  return V1_CONTROLLERS.every((controller) => v1[controller] !== undefined)
}

async function hasV2Controllers(own: string): Promise<boolean> {
  const available = (await readFile(join(own, 'cgroup.controllers'), 'utf8')).trim().split(' ')
  return V2_CONTROLLERS.every((controller) => available.includes(controller))
}

/** There a group may hold anything, so it goes below the one that this test is in. */
async function delegateV1(owner: Owner, pid: number): Promise<DelegatedGroups> {
  const parents = [...V1_CONTROLLERS.map((controller) => v1[controller]), v2].filter(
    (one) => one !== undefined,
  )
  const folders = [...new Set(parents)].map((parent) => join(parent, nameFor(owner)))
  for (const folder of folders) {
    await mkdir(folder)
    await handOver(folder, ['cgroup.procs'], owner)
    await writeFile(join(folder, 'cgroup.procs'), String(pid))
  }
  return {
    async remove() {
      for (const folder of folders) await removeTree(folder)
    },
  }
}

/** A group with processes has no groups with controllers below it: this test makes way as a server does. */
async function delegateV2(owner: Owner, pid: number): Promise<DelegatedGroups> {
  const backend = await chooseLimits(nameFor(owner), true)
  const group = await backend.create('scope', { ...UNUSED, ...WIDE })
  await group.add(pid)
  const folder = await groupOf(pid)
  await handOver(folder, ['cgroup.procs', 'cgroup.threads', 'cgroup.subtree_control'], owner)
  return {
    async remove() {
      await removeTree(folder)
      await backend.close()
    },
  }
}

async function groupOf(pid: number): Promise<string> {
  const { v2: folder } = await findCgroupMounts(`/proc/${pid}`)
  if (folder === undefined) throw new Error(`process ${pid} is in no control group`)
  return folder
}

const nameFor = ({ uid }: Owner) => `ash-delegated-${uid}`

async function handOver(folder: string, files: string[], { uid, gid }: Owner): Promise<void> {
  for (const path of [folder, ...files.map((file) => join(folder, file))]) await chown(path, uid, gid)
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
