import { expect, test } from 'vitest'
import { DEFAULT_LIMITS } from '../limits/resource-limits.ts'
import type { BridgeSpec, SandboxSpec } from '../provider.ts'
import { bwrapArgs } from './bwrap-args.ts'
import { SANDBOX_PATHS } from './bwrap-paths.ts'

const SPEC: BridgeSpec = {
  id: 'sandbox-1',
  runtime: {
    dir: '/srv/ash/runtime/1',
    node: '/srv/ash/runtime/1/node',
    bridge: '/srv/ash/runtime/1/bridge',
    compiled: '/srv/ash/runtime/1/compiled',
    kernels: '/srv/ash/runtime/1/kernels',
    pty: '/srv/ash/runtime/1/pty',
    claude: '/srv/ash/runtime/1/claude',
    etc: '/srv/ash/runtime/1/etc',
  },
  agentDir: '/srv/ash/agents/1',
  workspaceDir: '/srv/ash/sandboxes/1/workspace',
  homeDir: '/srv/ash/sandboxes/1/home',
  modelSocket: '/srv/ash/sandboxes/1/run/model.sock',
  egressSocket: '/srv/ash/sandboxes/1/run/egress.sock',
  tunnelSocket: '/srv/ash/sandboxes/1/run/tunnel.sock',
  owner: { uid: 200_000, gid: 200_000 },
  limits: DEFAULT_LIMITS,
  env: { PATH: '/usr/bin', LANG: 'C.UTF-8', ODD: '--bind / /host' },
}
const maskedProc = { kcore: 'file', scsi: 'dir' } as const
const MERGED = { usrLinks: { bin: 'link', sbin: 'link', lib: 'link', lib64: 'link' }, maskedProc } as const
const SPLIT = {
  usrLinks: { bin: 'dir', sbin: 'dir', lib: 'dir', lib64: 'dir', lib32: 'dir' },
  maskedProc,
} as const

/** How many words follow each option: a word that is none of these is not understood, and fails the test. */
const ARITY: Record<string, number> = {
  '--unshare-user': 0,
  '--unshare-pid': 0,
  '--unshare-net': 0,
  '--unshare-ipc': 0,
  '--unshare-uts': 0,
  '--unshare-cgroup-try': 0,
  '--disable-userns': 0,
  '--new-session': 0,
  '--die-with-parent': 0,
  '--clearenv': 0,
  '--cap-drop': 1,
  '--uid': 1,
  '--gid': 1,
  '--hostname': 1,
  '--perms': 1,
  '--size': 1,
  '--tmpfs': 1,
  '--dir': 1,
  '--proc': 1,
  '--dev': 1,
  '--remount-ro': 1,
  '--json-status-fd': 1,
  '--seccomp': 1,
  '--block-fd': 1,
  '--chdir': 1,
  '--setenv': 2,
  '--symlink': 2,
  '--bind': 2,
  '--ro-bind': 2,
  '--ro-bind-try': 2,
}

type Option = [name: string, ...values: string[]]

function parse(args: string[]): Option[] {
  const options: Option[] = []
  for (let at = 0; at < args.length; ) {
    const name = args[at] ?? ''
    const arity = ARITY[name]
    if (arity === undefined) throw new Error(`an option that the policy does not have: ${name}`)
    options.push([name, ...args.slice(at + 1, at + 1 + arity)])
    at += 1 + arity
  }
  return options
}

const hosts = [
  { name: 'a merged /usr', host: MERGED },
  { name: 'a split /usr', host: SPLIT },
]
const optionsOn = (host: Parameters<typeof bwrapArgs>[1], spec: SandboxSpec = SPEC) =>
  parse(bwrapArgs(spec, host, { status: 5, seccomp: 6, block: 7 }))
const named = (options: Option[], ...names: string[]) => options.filter(([name]) => names.includes(name))

test.each(hosts)('on $name only workspace and home are bound writable', ({ host }) => {
  expect(named(optionsOn(host), '--bind')).toEqual([
    ['--bind', SPEC.homeDir, SANDBOX_PATHS.home],
    ['--bind', SPEC.workspaceDir, SANDBOX_PATHS.workspace],
  ])
})

test.each(hosts)(
  'on $name nothing of the host is bound but system folders, named files and its own',
  ({ host }) => {
    const own = new Set<string | undefined>([
      ...Object.values(SPEC.runtime),
      ...['passwd', 'group', 'hosts', 'nsswitch.conf', 'resolv.conf'].map(
        (name) => `${SPEC.runtime.etc}/${name}`,
      ),
      SPEC.agentDir,
      SPEC.modelSocket,
      SPEC.egressSocket,
      SPEC.tunnelSocket,
    ])
    const fromHost = named(optionsOn(host), '--ro-bind', '--ro-bind-try')
      .map(([, source]) => source)
      .filter((source) => !own.has(source))
    const split = host === SPLIT ? ['/bin', '/sbin', '/lib', '/lib64', '/lib32'] : []
    expect(fromHost.filter((source) => !source?.startsWith('/etc/'))).toEqual(['/usr', ...split, '/dev/null'])
    expect(fromHost.filter((source) => source?.startsWith('/etc/'))).toEqual([
      '/etc/ld.so.cache',
      '/etc/ld.so.conf',
      '/etc/ld.so.conf.d',
      '/etc/alternatives',
      '/etc/ssl/certs',
      '/etc/ca-certificates',
      '/etc/localtime',
      '/etc/mime.types',
      '/etc/services',
      '/etc/protocols',
      '/etc/fonts',
      '/etc/matplotlibrc',
    ])
  },
)

test.each(['compiled', 'pty'] as const)('%s is bound beside the bridge, where there is one', (part) => {
  const bind = ['--ro-bind', SPEC.runtime[part], SANDBOX_PATHS[part]]
  expect(optionsOn(MERGED)).toContainEqual(bind)
  const alone = { ...SPEC, runtime: { ...SPEC.runtime, [part]: undefined } }
  expect(optionsOn(MERGED, alone)).toEqual(optionsOn(MERGED).filter(([, from]) => from !== bind[1]))
})

test('without a bridge there is neither its program nor a socket, and no agent’s folder', () => {
  const { modelSocket, egressSocket, tunnelSocket, agentDir, ...alone } = SPEC
  const gone = [
    modelSocket,
    egressSocket,
    tunnelSocket,
    agentDir,
    SPEC.runtime.bridge,
    SPEC.runtime.compiled,
    SPEC.runtime.pty,
    SPEC.runtime.claude,
  ]
  expect(optionsOn(MERGED, alone)).toEqual(optionsOn(MERGED).filter(([, from]) => !gone.includes(from)))
  expect(optionsOn(MERGED, alone)).toContainEqual(['--ro-bind', SPEC.runtime.kernels, SANDBOX_PATHS.kernels])
})

test('a variable that would end its argument is refused', () => {
  expect(() => optionsOn(MERGED, { ...SPEC, env: { ODD: 'x\0--bind\0/\0/host' } })).toThrow('NUL')
})

test.each(hosts)('on $name no mount point lies below workspace or home, which come last', ({ host }) => {
  const mounts = named(
    optionsOn(host),
    '--bind',
    '--ro-bind',
    '--ro-bind-try',
    '--tmpfs',
    '--dir',
    '--symlink',
    '--proc',
    '--dev',
  )
  const targets = mounts.map((option) => option.at(-1) ?? '')
  for (const untrusted of [SANDBOX_PATHS.home, SANDBOX_PATHS.workspace]) {
    expect(targets.filter((target) => target.startsWith(`${untrusted}/`))).toEqual([])
  }
  expect(targets.slice(-2)).toEqual([SANDBOX_PATHS.home, SANDBOX_PATHS.workspace])
})

test('every namespace is new, no privilege is kept and none can be gained', () => {
  const options = optionsOn(MERGED)
  for (const required of [
    ['--unshare-user'],
    ['--unshare-pid'],
    ['--unshare-net'],
    ['--unshare-ipc'],
    ['--unshare-uts'],
    ['--unshare-cgroup-try'],
    ['--disable-userns'],
    ['--cap-drop', 'ALL'],
    ['--uid', '1000'],
    ['--gid', '1000'],
    ['--new-session'],
    ['--die-with-parent'],
    ['--hostname', 'ash'],
  ]) {
    expect(options).toContainEqual(required)
  }
})

test('root and /dev become read-only after the last mount', () => {
  const names = optionsOn(MERGED)
  const lastMount = names.findLastIndex(([name]) => name === '--bind' || name === '--ro-bind')
  for (const target of ['/', '/dev']) {
    const at = names.findIndex((option) => option[0] === '--remount-ro' && option[1] === target)
    expect(at).toBeGreaterThan(lastMount)
  }
})

test('every writable file system in memory has a size', () => {
  const options = optionsOn(MERGED)
  for (const [at, [name]] of options.entries()) {
    if (name !== '--tmpfs') continue
    expect([options[at - 1]?.[0], options[at - 2]?.[0]]).toContain('--size')
  }
})

test('the environment is cleared and then exactly the one given', () => {
  const options = optionsOn(MERGED)
  const cleared = options.findIndex(([name]) => name === '--clearenv')
  const set = named(options, '--setenv')
  expect(set).toEqual(Object.entries(SPEC.env).map(([name, value]) => ['--setenv', name, value]))
  expect(options.findIndex(([name]) => name === '--setenv')).toBeGreaterThan(cleared)
})

test('nothing from the environment of the server is in the arguments', () => {
  process.env.ASH_TEST_SECRET = 'secret-of-the-host'
  try {
    const args = bwrapArgs(SPEC, MERGED, { status: 5, seccomp: 6, block: 7 })
    expect(args.join('\0')).not.toContain('secret-of-the-host')
    expect(args.join('\0')).not.toContain('ASH_TEST_SECRET')
  } finally {
    delete process.env.ASH_TEST_SECRET
  }
})

test('a link folder that the host does not have is not made', () => {
  expect(named(optionsOn({ usrLinks: {}, maskedProc }), '--symlink')).toEqual([])
})

test('what /proc tells of the whole machine is covered, files and folders alike', () => {
  const options = optionsOn(MERGED)
  expect(options).toContainEqual(['--ro-bind', '/dev/null', '/proc/kcore'])
  expect(options).toContainEqual(['--tmpfs', '/proc/scsi'])
  expect(options).toContainEqual(['--remount-ro', '/proc/scsi'])
})
