import { findCgroupMounts } from './cgroup-mounts.ts'
import { openCgroupV1 } from './cgroup-v1.ts'
import { openCgroupV2 } from './cgroup-v2.ts'
import type { LimitBackend } from './limit-backend.ts'
import { createRlimitBackend } from './rlimit.ts'

/** The strongest way of limiting that this machine allows: control groups of version 2, of version 1, none. */
export async function chooseLimits(prefix: string, hasOwnUsers: boolean): Promise<LimitBackend> {
  const mounts = await findCgroupMounts()
  const isPureV2 = mounts.v2 !== undefined && Object.keys(mounts.v1).length === 0
  const cgroups =
    isPureV2 && mounts.v2 !== undefined
      ? await openCgroupV2(mounts.v2, prefix)
      : await openCgroupV1(mounts, prefix)
  return cgroups ?? createRlimitBackend(hasOwnUsers)
}
