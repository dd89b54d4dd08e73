import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { ProcessInfo } from '../../support/sandbox-processes.ts'
import type { TestServer } from '../../support/test-server.ts'

/** What a server may leave on its host beside the data of its sessions. */
export interface Leftovers {
  processes: string[]
  mounts: string[]
  cgroups: string[]
  /** Folders of sessions that are not there any more. */
  folders: string[]
  /** What was being written to the store. */
  temporary: string[]
}

export const NO_LEFTOVERS: Leftovers = { processes: [], mounts: [], cgroups: [], folders: [], temporary: [] }

const CGROUP_DEPTH = 3

/** All there is while no session has a sandbox. */
export async function listLeftovers(server: TestServer, sessionIds: readonly string[]): Promise<Leftovers> {
  const { dataDir } = server
  const processes = await server.listSandboxProcesses()
  const mountinfo = await readFile('/proc/self/mountinfo', 'utf8')
  const folders = await readdir(join(dataDir, 'sandboxes'))
  return {
    processes: (await Promise.all(processes.map(describeLiving))).flat(),
    mounts: mountinfo.split('\n').filter((line) => line.includes(` ${dataDir}/`)),
    cgroups: await listSandboxGroups(dataDir),
    folders: folders.filter((folder) => !sessionIds.includes(folder)),
    temporary: await readdirIfThere(join(dataDir, 'snapshots', 'tmp')),
  }
}

/** One that has ended stays in the list until its parent has asked for its end, which is not the server's any more. */
async function describeLiving({ pid, command }: ProcessInfo): Promise<string[]> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')
  return /^State:\s+[^ZX]/m.test(status) ? [`${pid} ${command}`] : []
}

/** Control groups of sandboxes, below the one that carries the name of the host. */
async function listSandboxGroups(dataDir: string): Promise<string[]> {
  const hostId = await readFile(join(dataDir, 'host-id'), 'utf8')
  const own = await findFolders('/sys/fs/cgroup', `ash-${hostId.slice(0, 8)}`, CGROUP_DEPTH)
  const inside = await Promise.all(own.map(listFolders))
  return inside.flat()
}

async function findFolders(root: string, name: string, depth: number): Promise<string[]> {
  if (depth === 0) return []
  const folders = await listFolders(root)
  const found = folders.filter((folder) => folder.endsWith(`/${name}`))
  const deeper = await Promise.all(folders.map((folder) => findFolders(folder, name, depth - 1)))
  return [...found, ...deeper.flat()]
}

async function listFolders(root: string): Promise<string[]> {
  const entries = await readdir(root, { withFileTypes: true }).catch(() => [])
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => join(root, name))
}

const readdirIfThere = (folder: string): Promise<string[]> => readdir(folder).catch(() => [])
