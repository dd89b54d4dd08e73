import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { access, constants, readFile } from 'node:fs/promises'
import { release } from 'node:os'
import { promisify } from 'node:util'
import { ARCHITECTURES, createProvider } from '@ash-ai/sandbox'
import { fail, isRoot, messageOf, ok, type Verdict, warn } from './finding.ts'
import { installCommand, sudo } from './install-command.ts'

const run = promisify(execFile)
const BWRAP = '/usr/bin/bwrap'
const PRLIMIT = '/usr/bin/prlimit'
const OLDEST_BWRAP_MINOR = 8
/** From here on bubblewrap no longer follows links when it makes mount points: GHSA-pxhw-h44j-8pfx. */
const MENDED_BWRAP_MINOR = 12
const RUN_TIMEOUT_MS = 10_000

export async function checkSystem(platform = process.platform): Promise<Verdict> {
  if (platform === 'linux') return ok(`Linux ${release()}, ${process.arch}`)
  return fail(
    `${platform} has no bubblewrap, so there is no isolation`,
    'Use Linux; for development without isolation: ASH_PROVIDER=process ash start',
  )
}

export async function checkBwrap(): Promise<Verdict> {
  return judgeBwrap(await bwrapVersion())
}

/** `version` is what `bwrap --version` prints, undefined where it does not run. */
export function judgeBwrap(version: string | undefined): Verdict {
  if (version === undefined) return fail(`bubblewrap does not run (${BWRAP})`, installCommand('bubblewrap'))
  const [major = 0, minor = 0] = (/(\d+)\.(\d+)/.exec(version) ?? []).slice(1).map(Number)
  if (major === 0 && minor < OLDEST_BWRAP_MINOR) {
    return fail(
      `${version} is too old: 0.8 or newer is needed`,
      'Use a newer release of the system, such as Debian 12 or Ubuntu 24.04, or install bubblewrap from source',
    )
  }
  if (major > 0 || minor >= MENDED_BWRAP_MINOR) return ok(version)
  return ok(
    `${version}. Before 0.12 it has GHSA-pxhw-h44j-8pfx, which Ash avoids: ` +
      'it mounts nothing below a folder that can be written from inside',
  )
}

/** Really makes a sandbox, as the server would before its first one. */
export async function checkNamespaces(): Promise<Verdict> {
  if (judgeBwrap(await bwrapVersion()).status === 'fail') return warn('not tried without bubblewrap')
  try {
    await createProvider('bwrap').check()
  } catch (error) {
    return fail(reasonOf(error), await namespacesFix())
  }
  const user = isRoot() ? 'another user' : 'this user'
  return ok(`a sandbox was started as ${user}, with namespaces of its own`)
}

export async function checkPrlimit(): Promise<Verdict> {
  return access(PRLIMIT, constants.X_OK).then(
    () => ok(`${PRLIMIT} sets open files, file size and core dumps`),
    () => fail(`${PRLIMIT} is missing`, installCommand('util-linux')),
  )
}

export async function checkSeccomp(architecture: string = process.arch): Promise<Verdict> {
  if (!(architecture in ARCHITECTURES)) {
    const known = Object.keys(ARCHITECTURES).join(' or ')
    return fail(`there is no system call filter for ${architecture}`, `Use a machine with ${known}`)
  }
  const status = await readFile('/proc/self/status', 'utf8').catch(() => '')
  if (/^Seccomp:/m.test(status)) return ok(`compiled for ${architecture}, the kernel takes it`)
  return fail(
    'this kernel has no seccomp',
    'Use a kernel with CONFIG_SECCOMP_FILTER, as every distribution has',
  )
}

export async function checkCoreDumps(): Promise<Verdict> {
  return judgeCoreDumps((await readFile('/proc/sys/kernel/core_pattern', 'utf8')).trim())
}

/** Programs that take a dump and do nothing with it. */
const HARMLESS_HANDLERS = ['/bin/false', '/bin/true', '/usr/bin/false', '/usr/bin/true']

/** The kernel hands a dump to a program or socket whatever the limit on core files is: core(5). */
export function judgeCoreDumps(pattern: string): Verdict {
  const [handler = ''] = pattern.slice(1).trim().split(' ')
  const isHandedOver = pattern.startsWith('|') || pattern.startsWith('@')
  if (!isHandedOver) return ok('a crash inside leaves none: they would be files, which no sandbox may write')
  if (HARMLESS_HANDLERS.includes(handler)) return ok(`go to ${handler}, which drops them`)
  return warn(
    `go to ${handler} on the host, with memory of the sandbox, whenever something inside crashes`,
    `${sudo()}sysctl -w kernel.core_pattern=core, and the same in a file below /etc/sysctl.d`,
  )
}

async function bwrapVersion(): Promise<string | undefined> {
  return run(BWRAP, ['--version'], { env: {}, timeout: RUN_TIMEOUT_MS }).then(
    ({ stdout }) => stdout.trim(),
    () => undefined,
  )
}

/** What bubblewrap itself said; the message around it has remedies for every system. */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined
  if (!(cause instanceof Error)) return messageOf(error)
  const stderr = 'stderr' in cause ? String(cause.stderr).trim() : ''
  return `bubblewrap cannot make a sandbox: ${stderr || cause.message}`
}

/** Settings of the kernel that forbid user namespaces: file, the value that does, the one that does not. */
const KERNEL_SETTINGS = [
  ['kernel/unprivileged_userns_clone', '0', '1'],
  ['kernel/apparmor_restrict_unprivileged_userns', '1', '0'],
  ['user/max_user_namespaces', '0', '15000'],
] as const

async function namespacesFix(): Promise<string> {
  for (const [file, forbids, allows] of KERNEL_SETTINGS) {
    const value = await readFile(`/proc/sys/${file}`, 'utf8').catch(() => '')
    if (value.trim() === forbids) return `${sudo()}sysctl -w ${file.replace('/', '.')}=${allows}`
  }
  if (existsSync('/.dockerenv') || existsSync('/run/.containerenv')) {
    const options = ['seccomp', 'apparmor', 'systempaths'].map((name) => `--security-opt ${name}=unconfined`)
    return `Allow it from outside the container: docker run ${options.join(' ')} …`
  }
  return 'Allow this user to make user namespaces; a container or a systemd unit (RestrictNamespaces) may forbid them'
}
