import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'

/** Where this process's own control groups are, so that groups for sandboxes can be made below them. */
export interface CgroupMounts {
  /** Controller → folder of this process. */
  v1: Record<string, string>
  /** The folder of this process in the unified hierarchy, if that is mounted. */
  v2: string | undefined
}

export async function findCgroupMounts(procSelf = '/proc/self'): Promise<CgroupMounts> {
  const [mountinfo, cgroup] = await Promise.all([
    readFile(`${procSelf}/mountinfo`, 'utf8'),
    readFile(`${procSelf}/cgroup`, 'utf8'),
  ]).catch(() => ['', ''])
  return parseCgroupMounts(mountinfo ?? '', cgroup ?? '')
}

/** From the text of `/proc/self/mountinfo` and `/proc/self/cgroup`. */
export function parseCgroupMounts(mountinfo: string, cgroup: string): CgroupMounts {
  const own = new Map<string, string>()
  for (const line of cgroup.split('\n')) {
    const [, controllers, path] = /^\d+:([^:]*):(.+)$/.exec(line) ?? []
    for (const controller of controllers?.split(',') ?? []) if (path !== undefined) own.set(controller, path)
  }
  const mounts: CgroupMounts = { v1: {}, v2: undefined }
  for (const line of mountinfo.split('\n')) {
    const [before = '', after = ''] = line.split(' - ')
    const [, , , root = '/', mountPoint = ''] = before.split(' ')
    const [type, , options = ''] = after.split(' ')
    if (type === 'cgroup2') mounts.v2 = below(mountPoint, root, own.get('') ?? '/')
    if (type !== 'cgroup') continue
    for (const controller of options.split(',')) {
      const path = own.get(controller)
      if (path !== undefined) mounts.v1[controller] = below(mountPoint, root, path)
    }
  }
  return mounts
}

/** Inside a container only part of the hierarchy is mounted: `root` is where that part begins. */
function below(mountPoint: string, root: string, path: string): string {
  const prefix = root === '/' ? '' : root
  return resolve(mountPoint, `.${path.startsWith(prefix) ? path.slice(prefix.length) : ''}`)
}
