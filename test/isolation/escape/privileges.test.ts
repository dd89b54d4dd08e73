import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { lstat, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { syscallNumber } from '@ash-ai/sandbox/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { perl } from '../support/host-victim.ts'
import { ServerHost } from '../support/server-host.ts'
import { isRoot, SERVER_KINDS } from '../support/server-kinds.ts'

// Attempts to become more than a sandbox is. What succeeds goes on to leave `won` in the workspace, which the test
// sees from outside; and whatever was tried, kernel, processes and mounts must be as they were.

const call = (name: string, ...args: (string | number)[]) =>
  `syscall(${[syscallNumber(name), ...args].join(', ')})`
const NEWUSER = 0x10000000
const won = 'touch /workspace/won'
const ifZero = (expression: string, code = 'open F, ">", "/workspace/won"') =>
  perl(`${code} if ${expression} == 0`)

const NAMESPACES: [name: string, program: string][] = [
  ['a user namespace', `unshare --user --map-root-user ${won}`],
  ['a mount namespace', `unshare --mount ${won}`],
  ['a network namespace', `unshare --net ${won}`],
  ['a process namespace', `unshare --pid --fork ${won}`],
  ['a cgroup namespace', `unshare --cgroup ${won}`],
  [
    'a user namespace by clone',
    perl(`my $pid = ${call('clone', NEWUSER + 17, 0, 0, 0, 0)};
      if ($pid == 0) { open F, '>', '/workspace/won'; exit }`),
  ],
  ['the namespaces of process 1', `nsenter --target 1 --all ${won}`],
  ['another root by chroot', `mkdir -p jail/bin && chroot jail true; chroot / ${won}`],
]
const MOUNTS: [name: string, program: string][] = [
  ['a file system over /usr', `mount -t tmpfs none /usr && ${won}`],
  ['/usr writable', `mount -o remount,rw,bind /usr && ${won}`],
  ['the root writable', `mount -o remount,rw / && ${won}`],
  ['a fresh /proc', `mkdir -p proc && mount -t proc none proc && ${won}`],
  ['control groups', `mkdir -p cg && mount -t cgroup2 none cg && ${won}`],
  ['debugfs', `mkdir -p dbg && mount -t debugfs none dbg && ${won}`],
  ['/usr away', `umount -l /usr && ${won}`],
  ['a bind of the old root', `mkdir -p old && mount --bind /proc/1/root old && ${won}`],
  [
    'with the new mount calls',
    perl(`my $fs = 'tmpfs'; open F, '>', '/workspace/won' if ${call('fsopen', '$fs', 0)} >= 0`),
  ],
]
const RIGHTS: [name: string, program: string][] = [
  ['the user id of root', perl(`$< = $> = 0; open F, '>', '/workspace/won' if $> == 0`)],
  ['the group of root', ifZero(call('setgid', 0))],
  [
    'other groups',
    perl(`my $list = pack 'L', 0; open F, '>', '/workspace/won' if ${call('setgroups', 1, '$list')} == 0`),
  ],
  [
    'capabilities by capset',
    perl(`my $head = pack 'LL', 0x20080522, 0; my $data = pack 'L6', (0xffffffff) x 6;
      open F, '>', '/workspace/won' if ${call('capset', '$head', '$data')} == 0`),
  ],
  ['root through su', `echo | su -c '${won}'`],
  [
    'root through every set-user-id program',
    `for p in /usr/bin/{su,mount,newgrp,chsh,sudo,pkexec}; do $p --version; $p -c '${won}'; done < /dev/null`,
  ],
  [
    'root through a set-user-id copy',
    `cp /usr/bin/touch raise; chmod 6755 raise; ./raise raised; [ $(stat -c %u raised) = 1000 ] || ${won}`,
  ],
  ['capabilities through a file', `cp /usr/bin/touch able; setcap cap_sys_admin+ep able && ${won}`],
  ['other users in its map', `echo '0 0 1' > /proc/self/uid_map && ${won}`],
]
const KERNEL: [name: string, program: string][] = [
  ['setting where core dumps go', `echo '|/workspace/dump' > /proc/sys/kernel/core_pattern && ${won}`],
  ['setting how memory is granted', `echo 1 > /proc/sys/vm/overcommit_memory && ${won}`],
  ['setting how many files there may be', `echo 10 > /proc/sys/fs/file-max && ${won}`],
  // Newer kernels have one for each process namespace: setting its own is no win.
  ['setting how many processes there may be', 'echo 400 > /proc/sys/kernel/pid_max'],
  ['setting how many threads there may be', `echo 400 > /proc/sys/kernel/threads-max && ${won}`],
  [
    'registering a binary format',
    `echo ':x:M::xx::/workspace/x:' > /proc/sys/fs/binfmt_misc/register && ${won}`,
  ],
  ['asking by the system request key', `echo h > /proc/sysrq-trigger && ${won}`],
  [
    'renaming the host',
    perl(`my $name = 'owned'; open F, '>', '/workspace/won' if ${call('sethostname', '$name', 5)} == 0`),
  ],
  ['setting the clock', `date -s '2001-01-01' && ${won}`],
  ['slewing the clock', perl(`my $t = pack 'L x4 q20', 0x4000, (0) x 4, 11000; ${call('adjtimex', '$t')}`)],
  ['loading a module', `insmod /workspace/CLAUDE.md && ${won}`],
  ['loading a program into the kernel', ifZero(`(${call('bpf', 0, 0, 0)} < 0)`)],
  [
    'storing a key',
    perl(
      `my ($t, $d) = ('user', 'ash'); open F, '>', '/workspace/won' if ${call('add_key', '$t', '$d', '$d', 3, -3)} > 0`,
    ),
  ],
  ['swapping to a file', `truncate -s 1M swap; mkswap swap; swapon swap && ${won}`],
  ['leaving its control group', `for f in /sys/fs/cgroup/{,*/}cgroup.procs; do echo $$ > $f && ${won}; done`],
  ['running in real time', `chrt -f 50 ${won}`],
  ['running before everybody else', `nice -n -10 sh -c '[ $(nice) -ge 0 ] || ${won}'`],
  ['sparing itself from the memory killer', `echo -1000 > /proc/self/oom_score_adj && ${won}`],
  ['a block device of its own', `mknod disk b 254 0 && ${won}`],
  ['a character device of its own', `mknod mem c 1 1 && ${won}`],
  [
    'devices of the host',
    `for d in mem kmem port kmsg sda vda nvme0n1 kvm fuse net/tun loop-control loop0 uinput vhost-vsock; do head -c 1 /dev/$d && ${won}; done`,
  ],
]
const ATTEMPTS = [
  ...NAMESPACES.map(([name, program]) => [`entering ${name}`, program] as const),
  ...MOUNTS.map(([name, program]) => [`mounting: ${name}`, program] as const),
  ...RIGHTS.map(([name, program]) => [`gaining ${name}`, program] as const),
  ...KERNEL,
]

describe.each(SERVER_KINDS)('inside a sandbox of a server run by $name', ({ user, owner }) => {
  let server: ServerHost
  let workspace: string
  let uid: number
  let before: Awaited<ReturnType<typeof hostState>>
  beforeAll(async () => {
    const [serverUser, sandboxOwner] = [user(), owner()]
    server = await ServerHost.start(serverUser)
    await server.startSandbox('hostile', sandboxOwner)
    uid = (sandboxOwner ?? serverUser)?.uid ?? process.getuid?.() ?? 0
    workspace = server.dirsOf('hostile').workspace
    before = await hostState()
    expect(before.inside.length).toBeGreaterThan(1)
  })
  afterAll(() => server?.dispose())

  /** All that an attempt might have changed, as the host sees it. */
  async function hostState() {
    const below = (await server.listTree()).slice(1)
    const processes = await Promise.all(
      below.map(async ({ pid }) => {
        const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')
        const fields = /^(?:Uid|Gid|Groups|CapEff|CapPrm|NoNewPrivs|Seccomp):.*/gm
        const [mounts, cgroup] = await Promise.all(
          ['mountinfo', 'cgroup'].map((name) => readFile(`/proc/${pid}/${name}`, 'utf8').catch(() => '')),
        )
        return { pid, status: status.match(fields), mounts, cgroup }
      }),
    )
    // Not the outermost bwrap, which is outside: it has no filter and the mounts of the host.
    const inside = processes.filter(({ status }) => status?.includes('Seccomp:\t2'))
    const settings = [
      'kernel/core_pattern',
      'vm/overcommit_memory',
      'fs/file-max',
      'kernel/pid_max',
      'kernel/threads-max',
    ]
    const keys = await readFile('/proc/key-users', 'utf8')
    return {
      inside,
      won: (await readdir(workspace)).filter((name) => name === 'won'),
      devices: (await readdir(workspace, { withFileTypes: true })).filter(
        (entry) => entry.isBlockDevice() || entry.isCharacterDevice(),
      ),
      hostname: hostname(),
      settings: await Promise.all(settings.map((name) => readFile(`/proc/sys/${name}`, 'utf8'))),
      swaps: await readFile('/proc/swaps', 'utf8'),
      keys: new RegExp(`^\\s*${uid}:.*`, 'm').exec(keys)?.[0].split(/\s+/)[3],
      // Wall clock against the one that nobody can set, in steps of some seconds.
      clockStep: Math.round((Date.now() - performance.timeOrigin - performance.now()) / 5_000),
    }
  }

  test.each(ATTEMPTS)('nothing comes of %s', async (_, program) => {
    await server.exec('hostile', `PATH=$PATH:/usr/sbin; ${program}`)
    const after = await hostState()
    await rm(join(workspace, 'won'), { force: true })
    expect(after).toEqual(before)
  })

  test.runIf(isRoot)(
    'a set-user-id program of root in the workspace runs as the sandbox’s user',
    async () => {
      // Worse than anything made inside: root's own, put there from outside.
      execFileSync('install', ['-m', '6755', '/usr/bin/sleep', join(workspace, 'raise')])
      const running = server.exec('hostile', './raise 1.5')
      const find = async () => (await server.listTree()).filter(({ args }) => args[0] === './raise')
      await expect.poll(async () => (await find()).map((found) => found.uid)).toEqual([uid])
      await running
    },
  )

  test.runIf(isRoot)('a device node in the workspace cannot be opened', async () => {
    execFileSync('mknod', ['-m', '666', join(workspace, 'zeros'), 'c', '1', '5'])
    expect((await lstat(join(workspace, 'zeros'))).isCharacterDevice()).toBe(true)
    expect(execFileSync('head', ['-c', '3', join(workspace, 'zeros')]).length).toBe(3)
    expect((await server.exec('hostile', 'head -c 3 zeros')).stdout).toBe('')
    await rm(join(workspace, 'zeros'))
  })

  test.runIf(isRoot)('the kernel’s log stays outside', async () => {
    const canary = `ash-canary-${randomBytes(6).toString('hex')}`
    await writeFile('/dev/kmsg', `${canary}\n`)
    expect(execFileSync('dmesg', { encoding: 'utf8' })).toContain(canary)
    const buffer = `my $text = "\\0" x 1000000; ${call('syslog', 3, '$text', 1_000_000)}; print $text`
    const { stdout } = await server.exec('hostile', `dmesg; cat /dev/kmsg /proc/kmsg; ${perl(buffer)}`)
    expect(stdout).not.toContain(canary)
  })

  test('no address of the kernel and none of its memory can be read', async () => {
    const read = "awk '$1 !~ /^0+$/' /proc/kallsyms | head -c 100; head -c 100 /proc/kcore /dev/mem"
    expect((await server.exec('hostile', `${read} 2> /dev/null`)).stdout).toBe('')
  })

  test('a crash leaves no core dump, neither inside nor outside', async () => {
    const places = [workspace, server.dir, '/']
    const list = async () => (await Promise.all(places.map((place) => readdir(place)))).flat()
    const before = await list()
    const crash = "ulimit -c unlimited; ulimit -Sc unlimited; perl -e 'kill SEGV => $$'; echo done"
    expect((await server.exec('hostile', crash)).stdout).toBe('done\n')
    expect(await list()).toEqual(before)
  })

  test('nothing can be typed into a terminal', async () => {
    const own = perl(`open my $master, '+<', '/dev/ptmx'; my ($zero, $n) = (pack('i', 0), pack('i', 0));
      ioctl $master, 0x40045431, $zero; ioctl $master, 0x80045430, $n;
      open my $slave, '+<', '/dev/pts/' . unpack('i', $n) or die;
      ioctl $slave, 0x5412, $_ for split //, "typed\\n"; my $ready = ''; vec($ready, fileno $slave, 1) = 1;
      print scalar <$slave> if select($ready, undef, undef, 0.2)`)
    const { stdout } = await server.exec('hostile', `cat /dev/tty /dev/console < /dev/null; ${own}`)
    expect(stdout).not.toContain('typed')
    // As the host sees it: no process inside has a terminal.
    const stats = await Promise.all(
      (await server.listTree()).slice(1).map(({ pid }) => readFile(`/proc/${pid}/stat`, 'latin1')),
    )
    expect(stats.map((stat) => stat.slice(stat.lastIndexOf(')') + 2).split(' ')[4])).toEqual(
      stats.map(() => '0'),
    )
  })
})
