import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { createSocket, type Socket as UdpSocket } from 'node:dgram'
import { once } from 'node:events'
import { chmod, chown, mkdtemp, open, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Owner } from '@ash-ai/sandbox'
import { syscallNumber } from '@ash-ai/sandbox/testing'

/** The descriptor under which the victim holds its secret file. */
export const VICTIM_FD = 7

/**
 * A process of the host with all that an attacker could want of it, run as the very user that the sandbox has
 * outside: but for the sandbox nothing would keep them apart. `breaches` says what was done to it, as the host sees it.
 */
export class HostVictim {
  readonly secret = `secret-${randomBytes(12).toString('hex')}`
  /** Of shared memory, queues and sockets. */
  readonly key = randomBytes(3).readUIntBE(0, 3) + 1
  readonly abstractName = `ash-victim-${this.key}`
  readonly owner: Owner | undefined
  readonly dir: string
  readonly file: string
  readonly socketPath: string
  readonly shmFile = `/dev/shm/ash-victim-${this.key}`
  readonly ports = { tcp4: 0, tcp6: 0, udp: 0 }
  readonly #closers: (() => unknown)[] = []
  #child: ChildProcess | undefined
  #visits = 0
  #before = ''

  private constructor(dir: string, owner: Owner | undefined) {
    this.dir = dir
    this.owner = owner
    this.file = join(dir, 'secret.txt')
    this.socketPath = join(dir, 'victim.sock')
  }

  static async start(owner: Owner | undefined): Promise<HostVictim> {
    const victim = new HostVictim(await mkdtemp(join(tmpdir(), 'ash-victim-')), owner)
    await victim.#placeFiles()
    await victim.#listen()
    await victim.#startProcess()
    victim.#before = await victim.#state()
    return victim
  }

  get pid(): number {
    return this.#child?.pid ?? 0
  }

  /** Everything that an attempt has done to this host so far; `output` is what it brought back. */
  async breaches(output: string): Promise<string[]> {
    await sleep(5) // A connection is told by the event loop.
    const state = await this.#state()
    return [
      ...(output.includes(this.secret) ? ['the secret was read'] : []),
      ...(this.#visits > 0 ? ['a socket was reached'] : []),
      ...(state === this.#before ? [] : [`${this.#before} became ${state}`]),
    ]
  }

  /** Runs a program outside, as the victim's user and with no sandbox around it. */
  async runOutside(command: string): Promise<string> {
    const child = spawn('/bin/bash', ['-c', command], {
      cwd: this.dir,
      env: { PATH: '/usr/bin:/bin:/usr/sbin' },
      stdio: ['ignore', 'pipe', 'ignore'],
      timeout: 5_000,
      ...this.owner,
    })
    let output = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text
    })
    await once(child, 'close')
    return output
  }

  async dispose(): Promise<void> {
    for (const close of this.#closers) close()
    this.#child?.kill('SIGKILL')
    await this.runOutside(
      perl(`shmctl(shmget(${this.key}, 0, 0), 0, 0); msgctl(msgget(${this.key}, 0), 0, 0);
      my $name = 'ash-${this.key}'; syscall(${syscallNumber('mq_unlink')}, $name)`),
    )
    await rm(this.dir, { recursive: true, force: true })
    await rm(this.shmFile, { force: true })
  }

  async #placeFiles(): Promise<void> {
    await chmod(this.dir, 0o755)
    for (const path of [this.file, this.shmFile]) {
      await writeFile(path, this.secret)
      await chmod(path, 0o666)
      if (this.owner) await chown(path, this.owner.uid, this.owner.gid)
    }
    if (this.owner) await chown(this.dir, this.owner.uid, this.owner.gid)
  }

  async #listen(): Promise<void> {
    const visit = () => {
      this.#visits++
    }
    const serve = async (...where: [number, string] | [string]): Promise<Server> => {
      const server = createServer((socket) => {
        visit()
        socket.on('error', () => {}).end(this.secret)
      })
      this.#closers.push(() => server.close())
      server.listen(...(where as [string]))
      await once(server, 'listening')
      return server
    }
    await serve(this.socketPath)
    await chmod(this.socketPath, 0o777)
    await serve(`\0${this.abstractName}`)
    this.ports.tcp4 = ((await serve(0, '127.0.0.1')).address() as AddressInfo).port
    this.ports.tcp6 = ((await serve(0, '::1')).address() as AddressInfo).port
    const udp: UdpSocket = createSocket('udp4').on('message', visit)
    this.#closers.push(() => udp.close())
    udp.bind(0, '127.0.0.1')
    await once(udp, 'listening')
    this.ports.udp = udp.address().port
  }

  async #startProcess(): Promise<void> {
    const code = `my $secret = $ARGV[0]; umask 0; $| = 1;
      shmwrite(shmget(${this.key}, 100, 01666), $secret, 0, length $secret) or die 'shm';
      msgsnd(msgget(${this.key}, 01666), pack('l! a*', 1, $secret), 0) or die 'msg';
      my $name = 'ash-${this.key}';
      my $queue = syscall(${syscallNumber('mq_open')}, $name, 0102, 0666, 0);
      syscall(${syscallNumber('mq_timedsend')}, $queue, $secret, length $secret, 0, 0) == 0 or die 'mq';
      print "up\\n"; sleep 1000 while 1`
    const file = await open(this.file, 'r')
    const child = spawn('/usr/bin/perl', ['-e', code, this.secret], {
      cwd: this.dir,
      env: { SECRET: this.secret },
      stdio: ['ignore', 'pipe', 'inherit', 'ignore', 'ignore', 'ignore', 'ignore', file.fd],
      ...this.owner,
    })
    this.#child = child
    await once(child.stdout ?? child, 'data')
    await file.close()
  }

  /** Whatever of process and files somebody else could have changed. */
  async #state(): Promise<string> {
    const proc = (name: string) => readFile(`/proc/${this.pid}/${name}`, 'latin1').catch(() => 'gone')
    const [status, stat, score, limits] = await Promise.all(
      ['status', 'stat', 'oom_score_adj', 'limits'].map(proc),
    )
    const [files, text, shm] = await Promise.all([
      readdir(this.dir),
      readFile(this.file, 'latin1').catch(() => 'gone'),
      readFile(this.shmFile, 'latin1').catch(() => 'gone'),
    ])
    return JSON.stringify({
      // Running or asleep is its own affair.
      state: /^State:\s+(.)/m.exec(status ?? '')?.[1]?.replace(/[RSD]/, 'alive') ?? 'gone',
      cpus: /^Cpus_allowed:\s+(.*)/m.exec(status ?? '')?.[1],
      nice: stat?.slice(stat.lastIndexOf(')')).split(' ')[17],
      score: score?.trim(),
      openFiles: /^Max open files\s+(\d+)/m.exec(limits ?? '')?.[1],
      files: files.sort(),
      text,
      shm,
    })
  }
}

/** A Perl program as a shell command: every Debian has Perl, and it can make any system call. */
export function perl(code: string): string {
  return `perl - <<'END_OF_PERL'\n${code}\nEND_OF_PERL`
}
