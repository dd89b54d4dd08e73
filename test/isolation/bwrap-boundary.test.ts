import { once } from 'node:events'
import { mkdir, readdir, stat } from 'node:fs/promises'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { listDescriptors, listProcesses, syscallNumber } from '@ash-ai/sandbox/testing'
import type { ExecResult } from '@ash-ai/shared'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { HOST_SECRET, LEAKED_FD, ServerHost } from './support/server-host.ts'
import { SERVER_KINDS } from './support/server-kinds.ts'

// What code inside a sandbox can see and do, tried from inside, as a command of the agent's own user.

describe.each(SERVER_KINDS)('inside a sandbox of a server run by $name', ({ user, owner }) => {
  let server: ServerHost
  let sandboxUid: number
  let sandboxPid: number
  const listeners: Server[] = []

  beforeAll(async () => {
    const [serverUser, sandboxOwner] = [user(), owner()]
    server = await ServerHost.start(serverUser)
    sandboxPid = await server.startSandbox('first', sandboxOwner)
    sandboxUid = (sandboxOwner ?? serverUser)?.uid ?? process.getuid?.() ?? 0
    await server.startSandbox('second', owner())
  })
  afterAll(async () => {
    for (const listener of listeners) listener.close()
    await server?.dispose()
  })

  const exec = (command: string): Promise<ExecResult> => server.exec('first', command)
  const output = async (command: string) => (await exec(command)).stdout.trim()
  const lines = async (command: string) => (await output(command)).split('\n').filter(Boolean)
  const runNode = (code: string) => output(`node - <<'END'\n${code}\nEND`)
  const expectRefused = async (command: string) => {
    const result = await exec(command)
    expect(result.exitCode, `${command}: ${result.stdout}`).not.toBe(0)
  }

  test('PID 1 shows no environment, no host path and no argument of the policy', async () => {
    expect(await output('cat /proc/1/environ | wc -c')).toBe('0')
    const args = await lines("cat /proc/1/cmdline | tr '\\0' '\\n'")
    // Of a server that is not root: the limit that `ulimit -u` tells as well.
    expect(args.filter((arg) => !/^(\/usr\/bin\/prlimit|--nproc=\d+)$/.test(arg))).toEqual([
      '/usr/bin/bwrap',
      '--args',
      '4',
      '--',
      '/opt/ash/node',
      '/opt/ash/bridge',
    ])
  })

  test('no secret of the server is in any environment or command line', async () => {
    expect(
      await output(`cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'`),
    ).not.toMatch(new RegExp(`${HOST_SECRET}|sk-the-real-key`))
  })

  test('no file of the host exists: no accounts, homes, data or other sessions', async () => {
    const { root, workspace } = server.dirsOf('second')
    for (const path of [
      '/etc/shadow',
      '/root',
      '/var',
      '/srv',
      '/sys',
      '/boot',
      '/mnt',
      server.dir,
      root,
      workspace,
    ]) {
      await expectRefused(`ls -d '${path}'`)
    }
    expect(
      (await lines('ls -A /')).filter((name) => !/^(bin|sbin|lib\d*|libx32)$/.test(name)).sort(),
    ).toEqual(['agent', 'dev', 'etc', 'home', 'opt', 'proc', 'run', 'tmp', 'usr', 'workspace'])
    expect(await lines('ls /home /opt /run')).toEqual(['/home:', 'ash', '/opt:', 'ash', '/run:', 'ash'])
  })

  test('accounts, names and addresses are made up', async () => {
    expect(await output('cat /etc/passwd')).toMatch(/^ash:x:1000:1000:.*\nnobody:.*$/)
    expect(await output('cat /etc/hosts /etc/resolv.conf')).toBe('127.0.0.1 localhost ash\n::1 localhost ash')
    expect(await output('id -u; id -g; id -G')).toBe('1000\n1000\n1000')
    const name = await output('cat /proc/sys/kernel/hostname')
    expect(name).toBe('ash')
    expect(name).not.toBe(hostname())
  })

  test('no process of the host can be seen', async () => {
    const pids = (await lines('ls /proc')).filter((entry) => /^\d+$/.test(entry)).map(Number)
    expect(pids.length).toBeLessThan(10)
    expect(await output('cat /proc/2/comm')).toMatch(/node|MainThread/)
    await expectRefused(`kill -0 ${process.pid}`)
  })

  test('there is no network but an empty loopback', async () => {
    expect(await output("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")).toBe('lo')
    const tcp = createServer((socket) => socket.end('reached'))
    const abstract = createServer((socket) => socket.end('reached'))
    listeners.push(tcp, abstract)
    tcp.listen(0, '127.0.0.1')
    const socketName = `\0ash-boundary-${process.pid}-${sandboxUid}`
    abstract.listen(socketName)
    await Promise.all([once(tcp, 'listening'), once(abstract, 'listening')])
    await expectRefused(`exec 3<>/dev/tcp/127.0.0.1/${(tcp.address() as AddressInfo).port}`)
    await expectRefused('exec 3<>/dev/tcp/192.0.2.1/80')
    const dial = `require('node:net').connect(${JSON.stringify(socketName)})
      .on('error', (error) => console.log(error.code)).on('data', String)`
    expect(await runNode(dial)).toBe('ECONNREFUSED')
    await expectRefused('getent hosts example.com')
  })

  test('the only sockets are the ways to the proxies and for tunnels; that of the model takes no stranger', async () => {
    // A bound socket lies over a plain file, which is all that find sees of it.
    expect(await lines('find / -path /proc -prune -o -type s -print 2>/dev/null')).toEqual([])
    const points = "cut -d' ' -f5 /proc/self/mountinfo"
    expect(await lines(`for point in $(${points}); do [ ! -S $point ] || echo $point; done`)).toEqual([
      '/run/ash/model.sock',
      '/run/ash/egress.sock',
      '/run/ash/tunnel.sock',
    ])
    const ask = `require('node:http')
      .request({ socketPath: '/run/ash/model.sock', path: '/v1/messages', method: 'POST' })
      .on('response', ({ statusCode }) => console.log(statusCode)).end()`
    expect(await runNode(ask)).toBe('401')
  })

  test('there are no capabilities and none can be gained', async () => {
    const status = await output('cat /proc/self/status')
    for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapAmb', 'CapBnd']) {
      expect(status).toContain(`${set}:\t0000000000000000`)
    }
    expect(status).toContain('NoNewPrivs:\t1')
    await expectRefused('unshare --user true')
    await expectRefused('unshare --mount true')
    await expectRefused('mount -t tmpfs none /tmp')
    await expectRefused('chroot / true')
    await expectRefused('mknod /workspace/disk b 8 0')
  })

  const EPERM = 1
  const ENOSYS = 38
  test('system calls that reach into the kernel are refused', async () => {
    expect(await output('grep ^Seccomp: /proc/self/status')).toMatch(/2$/)
    const attempts: [call: string | number, args: number[], error: number][] = [
      ['mount', [0, 0, 0, 0, 0], EPERM],
      ['pivot_root', [0, 0], EPERM],
      ['chroot', [0], EPERM],
      ['open_tree', [0, 0, 0], ENOSYS],
      ['fsopen', [0, 0], ENOSYS],
      ['ptrace', [0, 0, 0, 0], EPERM],
      ['process_vm_readv', [1, 0, 0, 0, 0, 0], EPERM],
      ['pidfd_getfd', [0, 0, 0], EPERM],
      ['keyctl', [0, 0, 0, 0, 0], EPERM],
      ['add_key', [0, 0, 0, 0, 0], EPERM],
      ['bpf', [0, 0, 0], ENOSYS],
      ['perf_event_open', [0, 0, 0, 0, 0], EPERM],
      ['kexec_load', [0, 0, 0, 0], EPERM],
      ['init_module', [0, 0, 0], EPERM],
      ['io_uring_setup', [1, 0], ENOSYS],
      ['userfaultfd', [0], ENOSYS],
      ['unshare', [0x10000000], EPERM],
      ['setns', [0, 0], EPERM],
      ['clone', [0x10000011, 0, 0, 0, 0], EPERM], // into a user namespace
      ['clone3', [0, 0], ENOSYS],
      ['socket', [40, 1, 0], EPERM], // vsock, which network namespaces do not confine
      ['socket', [17, 3, 0], EPERM], // packet
      ['socket', [38, 5, 0], EPERM], // alg
      ['ioctl', [0, 0x5412, 0], EPERM], // TIOCSTI: typing into a terminal
      ['open_by_handle_at', [0, 0, 0], EPERM],
      ['clock_settime', [0, 0], EPERM],
      ['reboot', [0, 0, 0], EPERM],
      ['swapon', [0, 0], EPERM],
      [600, [], ENOSYS], // newer than the table
      [0x40000000 + 39, [], ENOSYS], // the numbers of x32
    ]
    const numbers = attempts.map(([call]) => (typeof call === 'number' ? call : syscallNumber(call)))
    const calls = attempts.map(([, args], index) => `r(${[numbers[index], ...args].join(',')});`).join('')
    const program = `sub r { my $n = shift; $! = 0; syscall($n, @_); print 0 + $!, "\\n" } ${calls}`
    const errors = (await lines(`perl -e '${program}'`)).map(Number)
    expect(attempts.map(([call], index) => [call, errors[index]])).toEqual(
      attempts.map(([call, , error]) => [call, error]),
    )
  })

  test('/proc tells nothing of the machine as a whole', async () => {
    for (const name of [
      'cmdline',
      'config.gz',
      'diskstats',
      'interrupts',
      'kallsyms',
      'kcore',
      'keys',
      'partitions',
    ]) {
      expect(await output(`head -c 64 /proc/${name} 2>/dev/null | wc -c`), name).toBe('0')
    }
    expect(await output('cat /proc/meminfo /proc/stat /proc/uptime | wc -l')).not.toBe('0')
  })

  test('the kernel’s own settings cannot be written', async () => {
    for (const path of [
      '/proc/sys/kernel/core_pattern',
      '/proc/sys/kernel/hostname',
      '/proc/sysrq-trigger',
    ]) {
      await expectRefused(`: > ${path}`)
    }
  })

  test('only workspace, home and memory can be written', async () => {
    for (const dir of [
      '/',
      '/usr',
      '/usr/bin',
      '/etc',
      '/opt',
      '/opt/ash',
      '/agent',
      '/run',
      '/run/ash',
      '/home',
      '/dev',
    ]) {
      await expectRefused(`touch ${dir}/planted`)
    }
    for (const file of [
      '/agent/CLAUDE.md',
      '/opt/ash/bridge',
      '/opt/ash/claude',
      '/opt/ash/node',
      '/etc/passwd',
    ]) {
      await expectRefused(`: >> ${file}`)
      await expectRefused(`chmod 777 ${file}`)
    }
    const mounts = await lines("cut -d' ' -f5,6 /proc/self/mountinfo")
    const writable = mounts.flatMap((line) => {
      const [point = '', options = ''] = line.split(' ')
      const isDevice = /^\/dev\/(null|zero|full|random|urandom|tty|console|pts)$/.test(point)
      return options.split(',').includes('rw') && !isDevice ? [point] : []
    })
    expect(writable.sort()).toEqual(['/dev/shm', '/home/ash', '/proc', '/tmp', '/workspace'])
    expect(await output('touch /workspace/a ~/a /tmp/a /dev/shm/a && rm /workspace/a && echo yes')).toBe(
      'yes',
    )
  })

  test('no mount lets a program run with its owner’s rights', async () => {
    expect(await lines("cut -d' ' -f6 /proc/self/mountinfo | grep -v nosuid")).toEqual([])
  })

  test('the bridge cannot be read, written or borrowed from', async () => {
    await expectRefused('head -c 1 /opt/ash/node')
    expect(await output('cat /proc/$PPID/comm')).toMatch(/node|MainThread/)
    for (const entry of ['environ', 'maps', 'mem', 'auxv', 'io'])
      await expectRefused(`head -c 1 /proc/$PPID/${entry}`)
    await expectRefused(': >> /proc/$PPID/mem')
    await expectRefused('ls /proc/$PPID/fd/')
    await expectRefused('ls /proc/$PPID/cwd/')
  })

  test('a command holds no descriptor but its own three, and nothing where the server’s leaked', async () => {
    expect(await lines('ls /proc/$$/fd; true')).toEqual(['0', '1', '2', String(LEAKED_FD)])
    expect(await output(`readlink /proc/$$/fd/${LEAKED_FD}; true`)).toBe('/dev/null')
  })

  test('a descriptor that the server inherited from the host reaches no process inside', async () => {
    const inside = (await server.listTree()).filter(({ uid }) => uid === sandboxUid)
    const hostFile = join(server.dir, 'host-file')
    const holders = await Promise.all(
      inside.map(async ({ pid }) => (await listDescriptors(pid)).includes(hostFile) && pid),
    )
    // The server itself holds it, where it runs as the same user; nothing below it does.
    const [serverProcess] = await server.listTree()
    expect(holders.filter((pid) => pid && pid !== serverProcess?.pid)).toEqual([])
    expect(await listDescriptors(serverProcess?.pid ?? 0)).toContain(hostFile)
    expect(inside.length).toBeGreaterThan(2)
    await expectRefused(`cat /proc/1/fd/${LEAKED_FD}`)
  })

  test('files written inside belong to the sandbox’s user outside', async () => {
    await exec('echo mine > owned.txt; mkdir -p ~/deep/er; ln -s /etc/shadow link')
    const { workspace, home } = server.dirsOf('first')
    expect((await stat(join(workspace, 'owned.txt'))).uid).toBe(sandboxUid)
    expect((await stat(join(home, 'deep', 'er'))).uid).toBe(sandboxUid)
    const tree = (await server.listTree()).filter(({ pid }) => pid === sandboxPid)
    expect(tree.map(({ uid }) => uid)).toEqual([sandboxUid])
    expect(sandboxUid).not.toBe(0)
  })

  test('links planted in workspace and home create nothing on the host at a later start', async () => {
    const target = join(server.dir, 'target')
    await mkdir(target, { mode: 0o777 })
    const names = ['agent', 'home', 'run', 'tmp', 'opt', 'etc', '.claude', '.home', 'CLAUDE.md', '.mcp.json']
    const plant = names.map((name) => `rm -rf ${name}; ln -s /oldroot${target}/${name} ${name}`).join('; ')
    const planting = owner()
    await server.startSandbox('planting', planting)
    expect((await server.exec('planting', `${plant}; cd ~; ${plant}`)).exitCode).toBe(0)
    await server.stopSandbox('planting')
    await server.startSandbox('planting', planting)
    expect((await server.exec('planting', 'readlink agent')).stdout.trim()).toBe(`/oldroot${target}/agent`)
    await server.stopSandbox('planting')
    expect(await readdir(target)).toEqual([])
  })

  test('workspace and home cannot be moved away, to put a link in their place', async () => {
    await expectRefused('rmdir /workspace')
    await expectRefused('mv /workspace /tmp/')
    await expectRefused('mv ~ /tmp/')
    expect((await readdir(server.dirsOf('first').root)).sort()).toEqual(['disk', 'run'])
    expect((await readdir(server.dirsOf('first').disk)).sort()).toEqual(['home', 'workspace'])
  })

  // Last: it ends the server.
  test('a server that is killed leaves no process of its sandboxes', async () => {
    const stubborn = 'trap "" TERM HUP; touch up; while :; do sleep 1000; done'
    await exec(`(setsid bash -c '${stubborn}' > /dev/null 2>&1 < /dev/null &); until [ -e up ]; do :; done`)
    const below = (await server.listTree()).slice(1)
    expect(below.length).toBeGreaterThan(6)
    const users = new Set(below.map(({ uid }) => uid))
    await server.kill()
    const left = async () => (await listProcesses()).filter(({ uid }) => users.has(uid))
    await expect.poll(left, { timeout: 5_000 }).toEqual([])
  })
})
