import { existsSync } from 'node:fs'
import { access, constants, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  chooseDisk,
  chooseLimits,
  createProvider,
  createRlimitBackend,
  type DiskBackend,
  findCgroupMounts,
  type LimitBackend,
} from '@ash-ai/sandbox'
import type { Config } from '../config.ts'
import { isRoot, type LimitsReport, ok, type Verdict, warn } from './finding.ts'
import { installCommand } from './install-command.ts'

type Probe = Pick<LimitBackend, 'name' | 'enforcement'>

/** What would hold the limits of a sandbox whose server was started like this process. Leaves nothing behind. */
export async function probeLimits(config: Pick<Config, 'provider' | 'limits'>): Promise<LimitsReport> {
  const diskMb = await probeDisk()
  if (config.provider === 'process') return createProvider('process', undefined, diskMb).limits
  const { v1, v2 } = await findCgroupMounts()
  const isPureV2 = v2 !== undefined && Object.keys(v1).length === 0
  const { name, enforcement } = isPureV2 ? await probeCgroupV2(v2) : await probeOthers(config.limits)
  return { backend: name, enforcement: { ...enforcement, diskMb, outputMbPerSecond: 'hard' } }
}

/** Tried in a folder of its own: in the data directory a server may be running. */
async function probeDisk(): Promise<DiskBackend['enforcement']> {
  const folder = await mkdtemp(join(tmpdir(), 'ash-doctor-'))
  try {
    await mkdir(join(folder, 'sandboxes'))
    const disk = await chooseDisk(folder)
    await disk.close()
    return disk.enforcement
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** Really makes a group. */
async function probeOthers(limits: Config['limits']): Promise<Probe> {
  const backend = await chooseLimits(`ash-doctor-${process.pid}`, isRoot())
  try {
    const group = await backend.create('probe', limits)
    await group.remove()
    return backend
  } finally {
    await backend.removeLeftovers()
    await backend.close()
  }
}

const V2_CONTROLLERS = ['memory', 'pids', 'cpu']

/**
 * Only looks: to use control groups of version 2 a server moves every process of its group, which here would be
 * the user's shell.
 */
export async function probeCgroupV2(own: string): Promise<Probe> {
  const rlimit = createRlimitBackend(isRoot())
  const text = await readFile(join(own, 'cgroup.controllers'), 'utf8').catch(() => '')
  const hasControllers = V2_CONTROLLERS.every((controller) => text.trim().split(' ').includes(controller))
  const files = [own, join(own, 'cgroup.procs'), join(own, 'cgroup.subtree_control')]
  const isOurs = await Promise.all(files.map((file) => access(file, constants.W_OK))).then(
    () => true,
    () => false,
  )
  if (!hasControllers || !isOurs) return rlimit
  return {
    name: 'cgroup-v2',
    enforcement: { ...rlimit.enforcement, memoryMb: 'hard', cpus: 'hard', processes: 'hard' },
  }
}

/** The share of the disk that a session has, which is held apart from the rest. */
export function judgeDisk({ enforcement: { diskMb } }: LimitsReport): Verdict {
  if (diskMb === 'hard') return ok('held by the kernel: each session has a file system of its size')
  const detail = 'watched, not held by the kernel: a sandbox that takes more than its share is stopped'
  if (!isRoot())
    return warn(detail, 'Run the server as root: only root may mount a file system for each session')
  if (!TOOL_DIRS.some((folder) => existsSync(join(folder, 'mke2fs'))))
    return warn(detail, installCommand('e2fsprogs'))
  return warn(
    detail,
    'Let the server mount images: in a container, CAP_SYS_ADMIN and the loop devices of the host',
  )
}

const TOOL_DIRS = ['/usr/sbin', '/usr/bin', '/sbin', '/bin']

export function judgeLimits({ backend, enforcement }: LimitsReport): Verdict {
  const levels = Object.entries(enforcement).filter(([key]) => key in LABELS)
  const named = (level: string) => levels.filter(([, held]) => held === level).map(([key]) => LABELS[key])
  const parts = [
    ['held by the kernel', named('hard')],
    ['watched', named('polled')],
    ['NOT limited', named('none')],
  ] as const
  const detail = `${backend}. ${parts
    .filter(([, keys]) => keys.length > 0)
    .map(([how, keys]) => `${how}: ${keys.join(', ')}`)
    .join('; ')}`
  if (named('none').length === 0) return ok(detail)
  return backend === 'rlimit' ? warn(detail, cgroupFix()) : warn(detail)
}

/** What process limits hold. The disk has a finding of its own, and output is held by the server wherever it runs. */
const LABELS: Record<string, string> = {
  memoryMb: 'memory',
  cpus: 'CPU',
  processes: 'processes',
  openFiles: 'open files',
  fileSizeMb: 'file size',
}

/** How a server gets control groups of its own, on this kind of system. */
function cgroupFix(): string {
  const isV2 = existsSync('/sys/fs/cgroup/cgroup.controllers')
  const hasSystemd = existsSync('/run/systemd/system')
  if (!existsSync('/sys/fs/cgroup') || (isRoot() && !hasSystemd)) {
    return 'Give the server write access to its control groups: in a container, a writable /sys/fs/cgroup'
  }
  if (isV2 && hasSystemd) {
    const scope = `systemd-run ${isRoot() ? '' : '--user '}--scope -p Delegate=yes`
    return `In the systemd unit of the server, under [Service]: Delegate=yes. From a shell: ${scope} ash start`
  }
  // Version 1 cannot be handed to other users safely.
  return isV2
    ? 'Give the user of the server write access to its control group below /sys/fs/cgroup'
    : 'Run the server as root: only root may make control groups of version 1'
}
