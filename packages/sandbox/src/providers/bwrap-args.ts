import type { BridgeSpec, SandboxSpec } from '../provider.ts'
import { SANDBOX_PATHS } from './bwrap-paths.ts'

const TMP_BYTES = 256 * 1024 * 1024
const SHM_BYTES = 64 * 1024 * 1024
const ROOT_BYTES = 1024 * 1024

/** Read-only host folders; the rest of the host does not exist inside. */
const SYSTEM_DIRS = ['/usr']
/** Merged-/usr links; on a system where these are real folders they are bound instead. */
const USR_LINKS = ['bin', 'sbin', 'lib', 'lib64', 'lib32']
/** Host files under /etc that programs need and that say nothing about the host. */
const ETC_FROM_HOST = [
  'ld.so.cache',
  'ld.so.conf',
  'ld.so.conf.d',
  'alternatives',
  'ssl/certs',
  'ca-certificates',
  'localtime',
  'mime.types',
  'services',
  'protocols',
  'fonts',
  // Without it Debian's matplotlib does not load.
  'matplotlibrc',
]
const ETC_OWN = ['passwd', 'group', 'hosts', 'nsswitch.conf', 'resolv.conf']

/** What /proc tells of the machine as a whole, or lets one do to it. Nothing inside needs these. */
export const MASKED_PROC = [
  'acpi',
  'asound',
  'cmdline',
  'config.gz',
  'diskstats',
  'driver',
  'fb',
  'interrupts',
  'iomem',
  'ioports',
  'kallsyms',
  'kcore',
  'key-users',
  'keys',
  'kmsg',
  'latency_stats',
  'modules',
  'partitions',
  'sched_debug',
  'scsi',
  'slabinfo',
  'softirqs',
  'sysrq-trigger',
  'timer_list',
  'vmallocinfo',
  'zoneinfo',
] as const

/** Facts of this host that the arguments depend on. */
export interface BwrapHost {
  /** Which of /bin, /sbin, /lib … are links into /usr, and which are folders of their own. */
  usrLinks: Record<string, 'link' | 'dir'>
  /** Which of MASKED_PROC this kernel has. */
  maskedProc: Record<string, 'file' | 'dir'>
}

/**
 * Sandbox → arguments of bubblewrap. This list is the isolation policy: what is not named here does not exist
 * inside. They travel by descriptor, because PID 1's command line can be read inside.
 */
export function bwrapArgs(
  spec: SandboxSpec | BridgeSpec,
  host: BwrapHost,
  fds: { status: number; seccomp: number; block: number | undefined },
): string[] {
  return [
    ...namespaces(),
    ...environment(spec.env),
    ...rootFileSystem(spec, host),
    ...['--seccomp', String(fds.seccomp)],
    // Nothing runs before it is in its control group.
    ...(fds.block === undefined ? [] : ['--block-fd', String(fds.block)]),
    ...['--json-status-fd', String(fds.status)],
    ...['--chdir', SANDBOX_PATHS.workspace],
  ]
}

function namespaces(): string[] {
  return [
    '--unshare-user', // named, not implied: --disable-userns needs it
    '--unshare-pid',
    '--unshare-net', // leaves an empty loopback
    '--unshare-ipc',
    '--unshare-uts',
    '--unshare-cgroup-try',
    '--disable-userns', // no user namespaces inside, hence no new privileges by that road
    '--cap-drop',
    'ALL',
    '--uid',
    '1000',
    '--gid',
    '1000',
    '--hostname',
    'ash',
    '--new-session', // no controlling terminal to type into
    '--die-with-parent', // a killed server leaves no orphan
  ]
}

function environment(env: Record<string, string>): string[] {
  // The arguments travel with a NUL behind each: one within a value would begin an argument of its own.
  const entries = Object.entries(env)
  if (entries.flat().some((text) => text.includes('\0'))) throw new Error('a variable holds a NUL')
  return ['--clearenv', ...entries.flatMap(([name, value]) => ['--setenv', name, value])]
}

function rootFileSystem(spec: SandboxSpec | BridgeSpec, host: BwrapHost): string[] {
  const { runtime } = spec
  return [
    ...['--perms', '0755', '--size', String(ROOT_BYTES), '--tmpfs', '/'],
    ...SYSTEM_DIRS.flatMap((dir) => ['--ro-bind', dir, dir]),
    ...USR_LINKS.flatMap((name) => usrLink(name, host.usrLinks[name])),
    ...etc(runtime.etc),
    ...['--proc', '/proc', '--dev', '/dev'],
    ...Object.entries(host.maskedProc).flatMap(([name, kind]) => maskedProc(name, kind)),
    ...['--size', String(SHM_BYTES), '--perms', '1777', '--tmpfs', '/dev/shm'],
    ...['--size', String(TMP_BYTES), '--perms', '1777', '--tmpfs', SANDBOX_PATHS.tmp],
    ...['--ro-bind', runtime.node, SANDBOX_PATHS.node],
    ...readOnly(runtime.kernels, SANDBOX_PATHS.kernels),
    ...readOnly(spec.agentDir, SANDBOX_PATHS.agent),
    ...('modelSocket' in spec ? bridgeFiles(spec) : []),
    // Last and with nothing mounted below them: bubblewrap before 0.12 follows links there when it makes mount points.
    ...['--bind', spec.homeDir, SANDBOX_PATHS.home],
    ...['--bind', spec.workspaceDir, SANDBOX_PATHS.workspace],
    ...['--remount-ro', '/dev', '--remount-ro', '/'],
  ]
}

/** Only a bridge has use for these; an interpreter by itself has no way out. */
function bridgeFiles({ runtime, modelSocket, egressSocket, tunnelSocket }: BridgeSpec): string[] {
  return [
    ...['--ro-bind', runtime.bridge, SANDBOX_PATHS.bridge],
    ...readOnly(runtime.compiled, SANDBOX_PATHS.compiled),
    ...readOnly(runtime.pty, SANDBOX_PATHS.pty),
    ...['--ro-bind', runtime.claude, SANDBOX_PATHS.claude],
    ...['--ro-bind', modelSocket, SANDBOX_PATHS.modelSocket],
    ...['--ro-bind', egressSocket, SANDBOX_PATHS.egressSocket],
    ...readOnly(tunnelSocket, SANDBOX_PATHS.tunnelSocket),
  ]
}

/** What a sandbox has no need of is not there at all. */
const readOnly = (path: string | undefined, inside: string) =>
  path === undefined ? [] : ['--ro-bind', path, inside]

/** An empty file or folder over it. */
function maskedProc(name: string, kind: 'file' | 'dir'): string[] {
  if (kind === 'file') return ['--ro-bind', '/dev/null', `/proc/${name}`]
  return ['--size', '4096', '--perms', '0555', '--tmpfs', `/proc/${name}`, '--remount-ro', `/proc/${name}`]
}

function usrLink(name: string, kind: 'link' | 'dir' | undefined): string[] {
  if (kind === 'link') return ['--symlink', `usr/${name}`, `/${name}`]
  if (kind === 'dir') return ['--ro-bind', `/${name}`, `/${name}`]
  return []
}

function etc(ownDir: string): string[] {
  return [
    ...['--perms', '0755', '--dir', '/etc'],
    ...ETC_FROM_HOST.flatMap((name) => ['--ro-bind-try', `/etc/${name}`, `/etc/${name}`]),
    ...ETC_OWN.flatMap((name) => ['--ro-bind', `${ownDir}/${name}`, `/etc/${name}`]),
  ]
}
