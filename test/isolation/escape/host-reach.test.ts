import { syscallNumber } from '@ash-ai/sandbox/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { HostVictim, perl, VICTIM_FD } from '../support/host-victim.ts'
import { nextOwner } from '../support/provider-fixture.ts'
import { ServerHost } from '../support/server-host.ts'
import { SERVER_KINDS } from '../support/server-kinds.ts'

// Each attempt is one program, aimed at a process of the host that runs as the sandbox's own user. Run outside, it
// must succeed, or it would prove nothing; run inside, it must change nothing and bring nothing back.

type Attempt = [name: string, program: (victim: HostVictim) => string]

const heapOf = (pid: number) =>
  `open my $maps, '<', '/proc/${pid}/maps' or die; my ($from, $to);
   while (<$maps>) { ($from, $to) = (hex $1, hex $2) if /^(\\w+)-(\\w+) .*\\[heap\\]/ }`
const SYSV = 'my $text = "\\0" x 100;'
const call = (name: string, ...args: (string | number)[]) =>
  `syscall(${[syscallNumber(name), ...args].join(', ')})`
const dial = (address: string) =>
  perl(`use Socket; socket my $socket, AF_UNIX, SOCK_STREAM, 0;
    connect $socket, pack_sockaddr_un("${address}") and print <$socket>`)

const READING: Attempt[] = [
  ['reading the environment of a host process', ({ pid }) => `cat /proc/${pid}/environ`],
  ['reading the command lines of the host', () => 'cat /proc/[0-9]*/cmdline'],
  [
    'reading the memory of a host process',
    ({ pid }) =>
      perl(`${heapOf(pid)} open my $mem, '<', '/proc/${pid}/mem' or die;
        seek $mem, $from, 0; read $mem, my $bytes, $to - $from; print $bytes`),
  ],
  [
    'reading the memory of a host process by system call',
    ({ pid }) =>
      perl(`${heapOf(pid)} my $bytes = "\\0" x ($to - $from);
        my $local = pack 'QQ', unpack('Q', pack 'P', $bytes), $to - $from; my $remote = pack 'QQ', $from, $to - $from;
        ${call('process_vm_readv', pid, '$local', 1, '$remote', 1, 0)}; print $bytes`),
  ],
  ['reading through an open descriptor of a host process', ({ pid }) => `cat /proc/${pid}/fd/${VICTIM_FD}`],
  [
    'taking over an open descriptor of a host process',
    ({ pid }) =>
      perl(`my $fd = ${call('pidfd_open', pid, 0)};
        my $taken = ${call('pidfd_getfd', '$fd', VICTIM_FD, 0)}; open my $file, "/proc/self/fd/$taken"; print <$file>`),
  ],
  ['reading below the root of a host process', ({ pid, file }) => `cat /proc/${pid}/root${file}`],
  [
    'reading below the root of any process in sight',
    ({ file }) => `for root in /proc/[0-9]*/root; do cat $root${file}; done 2>/dev/null`,
  ],
  ['reading in the folder of a host process', ({ pid }) => `cat /proc/${pid}/cwd/secret.txt`],
  ['reading a host file that everybody may read', ({ file }) => `cat ${file}`],
  ['making a hard link to a host file', ({ file }) => `ln ${file} stolen && cat stolen`],
  ['making a symbolic link to a host file', ({ file }) => `ln -s ${file} pointer && cat pointer`],
  ['reading the host’s POSIX shared memory', ({ shmFile }) => `cat ${shmFile}`],
  [
    'reading the host’s System V shared memory',
    ({ key }) => perl(`${SYSV} shmread(shmget(${key}, 0, 0), $text, 0, 100); print $text`),
  ],
  [
    'receiving from a System V queue of the host',
    ({ key }) => perl(`${SYSV} msgrcv(msgget(${key}, 0), $text, 100, 0, 04000); print $text`),
  ],
  [
    'receiving from a POSIX queue of the host',
    ({ key }) =>
      perl(`my $name = 'ash-${key}'; my $text = "\\0" x 8192; my $past = pack 'QQ', 1, 0;
        ${call('mq_timedreceive', call('mq_open', '$name', 2, 0, 0), '$text', 8192, 0, '$past')}; print $text`),
  ],
]

const TOUCHING: Attempt[] = [
  ['killing a host process', ({ pid }) => `kill -KILL ${pid}`],
  ['stopping a host process', ({ pid }) => `kill -STOP ${pid}`],
  [
    'signalling a host process through a descriptor',
    ({ pid }) => perl(call('pidfd_send_signal', call('pidfd_open', pid, 0), 9, 0, 0)),
  ],
  [
    'attaching to a host process as a debugger',
    ({ pid }) => perl(`${call('ptrace', 16, pid, 0, 0)}; select undef, undef, undef, 0.2`),
  ],
  ['offering a host process to the memory killer', ({ pid }) => `echo 1000 > /proc/${pid}/oom_score_adj`],
  ['slowing a host process down', ({ pid }) => `renice -n 19 -p ${pid}`],
  ['tightening the limits of a host process', ({ pid }) => `prlimit --pid ${pid} --nofile=20:20`],
  ['moving a host process to another core', ({ pid }) => `taskset -cp 0 ${pid}`],
  ['overwriting a host file that everybody may write', ({ file }) => `echo changed > ${file}`],
  [
    'overwriting a file below the root of a host process',
    ({ pid, file }) => `echo changed > /proc/${pid}/root${file}`,
  ],
  ['removing a host file', ({ file }) => `rm -f ${file}`],
  ['planting a file in a host folder', ({ dir }) => `touch ${dir}/planted`],
  ['overwriting the host’s POSIX shared memory', ({ shmFile }) => `echo changed > ${shmFile}`],
]

const CONNECTING: Attempt[] = [
  ['an abstract socket of the host', ({ abstractName }) => dial(`\\0${abstractName}`)],
  ['a socket of the host by its path', ({ socketPath }) => dial(socketPath)],
  [
    'a socket below the root of a host process',
    ({ pid, socketPath }) => dial(`/proc/${pid}/root${socketPath}`),
  ],
  ['a port of the host’s loopback', ({ ports }) => `cat < /dev/tcp/127.0.0.1/${ports.tcp4}`],
  ['a port of the host’s IPv6 loopback', ({ ports }) => `cat < /dev/tcp/::1/${ports.tcp6}`],
  ['a datagram port of the host’s loopback', ({ ports }) => `echo hello > /dev/udp/127.0.0.1/${ports.udp}`],
]
const ATTEMPTS: Attempt[] = [
  ...READING,
  ...TOUCHING,
  ...CONNECTING.map(([name, program]): Attempt => [`connecting to ${name}`, program]),
]

describe('outside, as a control', () => {
  test.each(ATTEMPTS)('%s works', async (_, program) => {
    const victim = await HostVictim.start(nextOwner())
    try {
      const output = await victim.runOutside(program(victim))
      await expect.poll(() => victim.breaches(output)).not.toEqual([])
    } finally {
      await victim.dispose()
    }
  })
})

describe.each(SERVER_KINDS)('inside a sandbox of a server run by $name', ({ user, owner }) => {
  let server: ServerHost
  let victim: HostVictim
  beforeAll(async () => {
    const [serverUser, sandboxOwner] = [user(), owner()]
    server = await ServerHost.start(serverUser)
    await server.startSandbox('hostile', sandboxOwner)
    victim = await HostVictim.start(sandboxOwner ?? serverUser)
  })
  afterAll(async () => {
    await victim?.dispose()
    await server?.dispose()
  })

  test.each(ATTEMPTS)('nothing comes of %s', async (_, program) => {
    const { stdout, stderr } = await server.exec('hostile', program(victim))
    expect(await victim.breaches(stdout + stderr)).toEqual([])
  })

  test('the bridge and its neighbour still answer', async () => {
    await server.startSandbox('neighbour', owner())
    for (const name of ['hostile', 'neighbour'])
      expect((await server.exec(name, 'echo here')).stdout).toBe('here\n')
  })
})
