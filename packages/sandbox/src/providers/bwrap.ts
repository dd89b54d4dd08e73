import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { lstat } from 'node:fs/promises'
import { promisify } from 'node:util'
import { AshError, interpreterCommand } from '@ash-ai/shared'
import type { DiskBackend } from '../limits/disk/disk-backend.ts'
import type { Entrance, LimitBackend, LimitGroup } from '../limits/limit-backend.ts'
import { countsByNamespace, prlimitArgs } from '../limits/rlimit.ts'
import type {
  BridgeSpec,
  InterpreterProcess,
  SandboxProcess,
  SandboxProvider,
  SandboxSpec,
} from '../provider.ts'
import { interpreterEnv, sandboxEnv } from '../sandbox-env.ts'
import { ARCHITECTURES, compileFilter } from '../seccomp/compile.ts'
import { POLICY } from '../seccomp/policy.ts'
import { type BwrapHost, bwrapArgs, MASKED_PROC } from './bwrap-args.ts'
import { SANDBOX_PATHS } from './bwrap-paths.ts'
import { programsInside } from './interpreter-programs.ts'
import { expectOutput, spawnWithOutput } from './output-pipes.ts'
import { watchInterpreter } from './watch-interpreter.ts'
import { watchProcess } from './watch-process.ts'
import type { Descriptors } from './watch-tree.ts'

const run = promisify(execFile)
const OLDEST_VERSION = [0, 8]
/** Of the bridge's protocol, or of an interpreter's requests and replies. */
const STREAM_FD = 3
const ARGS_FD = 4
const STATUS_FD = 5
const SECCOMP_FD = 6
const BLOCK_FD = 7
/**
 * Enters the groups behind its input and the descriptors from the seventh on, then becomes what its arguments say. A
 * process moves itself at once; to move another the kernel waits for all CPUs, as long as bubblewrap takes for
 * everything. The input, because a shell knows no descriptors above the ninth.
 */
const ENTER = `echo 0 >&0 && echo 0 >&7 && echo 0 >&8 && echo 0 >&9 &&
exec 0</dev/null 7>&- 8>&- 9>&- && unset PWD OLDPWD SHLVL && exec "$@"`
/** Sets the limits of single processes, then becomes bwrap. */
const PRLIMIT = '/usr/bin/prlimit'

/** Sandboxes under bubblewrap: all namespaces, a private root, no network, a host user of its own when root. */
export function createBwrapProvider(
  backend: LimitBackend,
  diskMb: DiskBackend['enforcement'],
  bwrap = '/usr/bin/bwrap',
): SandboxProvider {
  let host: Promise<BwrapHost> | undefined
  return {
    name: 'bwrap',
    isolation: 'bwrap',
    limits: {
      backend: backend.name,
      enforcement: { ...backend.enforcement, diskMb, outputMbPerSecond: 'hard' },
    },
    check: () => checkBwrap(bwrap),
    expectStart: expectOutput,
    start: (spec) => under(spec, (launch) => startBridge(spec, launch)),
    startInterpreter: (spec, language) => {
      const command = interpreterCommand(language, programsInside(spec, language))
      return under(spec, (launch) => startInterpreter(spec, command, launch))
    },
  }

  /** Makes the limits; whatever fails takes them down again. */
  async function under<Started>(
    spec: SandboxSpec,
    start: (launch: Launch) => Promise<Started>,
  ): Promise<Started> {
    host ??= describeHost()
    const [known, group] = await Promise.all([host, backend.create(spec.id, spec.limits)])
    return start({ bwrap, host: known, group, backend }).catch(async (error: unknown) => {
      await group.kill()
      await group.remove()
      throw error
    })
  }
}

/** What every start needs beside its own spec. */
interface Launch {
  bwrap: string
  host: BwrapHost
  group: LimitGroup
  backend: LimitBackend
}

async function startBridge(spec: BridgeSpec, launch: Launch): Promise<SandboxProcess> {
  const agent = spec.agentDir === undefined ? undefined : SANDBOX_PATHS.agent
  const env = sandboxEnv({ ...SANDBOX_PATHS, agent }, spec.id, spec.env)
  const { child, fds } = spawnBwrap({ ...spec, env }, [SANDBOX_PATHS.node, SANDBOX_PATHS.bridge], launch, {
    stdout: 'ignore',
    stderr: 'pipe',
    entrance: launch.group.entrance,
  })
  return watchProcess(child, { ...fds, bridgeFd: STREAM_FD }, launch.group)
}

async function startInterpreter(
  spec: SandboxSpec,
  command: string[],
  launch: Launch,
): Promise<InterpreterProcess> {
  const env = interpreterEnv(SANDBOX_PATHS, spec.id, spec.env)
  const { entrance } = launch.group
  const { fds, ...started } = await spawnWithOutput((stdout, stderr) =>
    spawnBwrap({ ...spec, env }, command, launch, { stdout, stderr, entrance }),
  )
  return watchInterpreter(started, { ...fds, channelFd: STREAM_FD }, launch.group)
}

interface SpawnOptions {
  stdout: 'pipe' | 'ignore' | number
  stderr: 'pipe' | number
  /** Without one bubblewrap waits until it has been moved. */
  entrance?: Entrance | undefined
}

function spawnBwrap(
  spec: SandboxSpec,
  program: string[],
  { bwrap, host, backend }: Launch,
  { stdout, stderr, entrance }: SpawnOptions,
): { child: ChildProcess; fds: Descriptors } {
  assertOwnUser(spec)
  const block = entrance ? undefined : BLOCK_FD
  const args = bwrapArgs(spec, host, { status: STATUS_FD, seccomp: SECCOMP_FD, block })
  const inputs = { [ARGS_FD]: `${args.join('\0')}\0`, [SECCOMP_FD]: seccompFilter() }
  const rlimits = prlimitArgs(spec.limits, backend.name === 'rlimit' && spec.owner !== undefined)
  // Set inside, the limit counts this sandbox alone; outside it would count every process of the server's user.
  const inside =
    backend.name === 'rlimit' && spec.owner === undefined && countsByNamespace()
      ? [PRLIMIT, `--nproc=${spec.limits.processes}`]
      : []
  const command = [PRLIMIT, ...rlimits, bwrap, '--args', String(ARGS_FD), '--', ...inside, ...program]
  const [first = '', ...rest] = entrance ? ['/bin/sh', '-c', ENTER, 'sh', ...command] : command
  const open: number[] = []
  const shields = openShields()
  try {
    for (const file of entrance?.files ?? []) open.push(openSync(file, 'w'))
    const [firstDoor, ...doors] = open
    // An empty environment and arguments by descriptor: PID 1 inside is bwrap itself, and its /proc entries are
    // readable there.
    const child = spawn(first, rest, {
      env: {},
      cwd: '/',
      stdio: shields.over([
        firstDoor ?? 'ignore',
        ...([stdout, stderr, 'pipe', 'pipe', 'pipe', 'pipe'] as const),
        ...(entrance ? doors : ['pipe' as const]),
      ]),
      ...(spec.owner && { uid: spec.owner.uid, gid: spec.owner.gid }),
    })
    const blocked = entrance ? { isInside: true } : { blockFd: BLOCK_FD }
    return { child, fds: { statusFd: STATUS_FD, inputs, ...blocked } }
  } finally {
    shields.close()
    for (const door of open) closeSync(door)
  }
}

let filter: Buffer | undefined

function seccompFilter(): Buffer {
  const architecture = ARCHITECTURES[process.arch]
  if (!architecture) {
    throw new AshError(
      'provider_unavailable',
      `There is no system call filter for ${process.arch}: x64 or arm64 is needed.`,
    )
  }
  filter ??= compileFilter(POLICY, architecture)
  return filter
}

/** As host root without another user, the sandbox's user would be root outside. */
function assertOwnUser(spec: SandboxSpec): void {
  if (
    process.getuid?.() === 0 &&
    (spec.owner === undefined || spec.owner.uid === 0 || spec.owner.gid === 0)
  ) {
    throw new Error('a sandbox started by root needs a user of its own')
  }
}

/**
 * Descriptors the server inherited without close-on-exec would reach the sandbox. Node opens its own with it,
 * so only those present at start matter: /dev/null is put over each.
 */
function openShields() {
  const leaky = inheritedFds()
  const nullFd = leaky.length > 0 ? openSync('/dev/null', 'r') : undefined
  return {
    over(stdio: ('ignore' | 'pipe' | number)[]): ('ignore' | 'pipe' | number)[] {
      const all: ('ignore' | 'pipe' | number)[] = [...stdio]
      for (const fd of leaky) {
        while (all.length < fd) all.push('ignore')
        if (nullFd !== undefined && fd >= stdio.length) all[fd] = nullFd
      }
      return all
    },
    close() {
      if (nullFd !== undefined) closeSync(nullFd)
    },
  }
}

const O_CLOEXEC = 0o2000000
let inherited: number[] | undefined

function inheritedFds(): number[] {
  inherited ??= readdirSync('/proc/self/fdinfo')
    .map(Number)
    .filter((fd) => fd > 2 && isInheritable(fd))
    .sort((a, b) => a - b)
  return inherited
}

function isInheritable(fd: number): boolean {
  try {
    const flags = /^flags:\s*(\d+)/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1]
    return flags !== undefined && (Number.parseInt(flags, 8) & O_CLOEXEC) === 0
  } catch {
    return false // The descriptor of the listing itself, closed by now.
  }
}

async function describeHost(): Promise<BwrapHost> {
  const usrLinks: BwrapHost['usrLinks'] = {}
  for (const name of ['bin', 'sbin', 'lib', 'lib64', 'lib32']) {
    const entry = await lstat(`/${name}`).catch(() => undefined)
    if (entry) usrLinks[name] = entry.isSymbolicLink() ? 'link' : 'dir'
  }
  const maskedProc: BwrapHost['maskedProc'] = {}
  for (const name of MASKED_PROC) {
    const entry = await lstat(`/proc/${name}`).catch(() => undefined)
    if (entry) maskedProc[name] = entry.isDirectory() ? 'dir' : 'file'
  }
  return { usrLinks, maskedProc }
}

/** There must be a bubblewrap that is new enough and may make user namespaces. No weaker way is tried. */
async function checkBwrap(bwrap: string): Promise<void> {
  const install = 'Install it: apt-get update && apt-get install -y bubblewrap'
  const { stdout } = await run(bwrap, ['--version'], { env: {} }).catch((error: unknown) => {
    throw new AshError('provider_unavailable', `bubblewrap does not run (${bwrap}). ${install}`, {
      cause: error,
    })
  })
  const [major = 0, minor = 0] = (/(\d+)\.(\d+)/.exec(stdout) ?? []).slice(1).map(Number)
  if (major === 0 && minor < (OLDEST_VERSION[1] ?? 0)) {
    throw new AshError(
      'provider_unavailable',
      `${stdout.trim()} is too old: 0.8 or newer is needed. ${install}`,
    )
  }
  seccompFilter()
  await tryNamespaces(bwrap)
}

async function tryNamespaces(bwrap: string): Promise<void> {
  const nobody = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {}
  const args = ['--unshare-user', '--unshare-all', '--disable-userns', '--ro-bind', '/usr', '/usr']
  const links = [
    '--symlink',
    'usr/lib',
    '/lib',
    '--symlink',
    'usr/lib64',
    '/lib64',
    '--proc',
    '/proc',
    '--dev',
    '/dev',
  ]
  await run(bwrap, [...args, ...links, '/usr/bin/true'], { env: {}, cwd: '/', ...nobody }).catch(
    (error: unknown) => {
      const reason = error instanceof Error ? error.message.split('\n').slice(1).join(' ').trim() : ''
      throw new AshError(
        'provider_unavailable',
        `bubblewrap cannot make a sandbox here: ${reason}. User namespaces may be off: ` +
          'try "sysctl kernel.unprivileged_userns_clone=1" or, on Ubuntu, "sysctl kernel.apparmor_restrict_unprivileged_userns=0".',
        { cause: error },
      )
    },
  )
}
