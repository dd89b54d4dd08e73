import { execFileSync } from 'node:child_process'
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { listDescriptors } from '@ash-ai/sandbox/testing'
import { MAX_EXEC_OUTPUT_BYTES } from '@ash-ai/shared'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { perl } from '../support/host-victim.ts'
import { type LabSandbox, SandboxLab } from '../support/sandbox-lab.ts'

// Attempts to use up the host. The control group, read from outside, says what was used; a neighbour and this process,
// which is the server here, must not notice.

const MB = 1024 * 1024
const LIMITS = { memoryMb: 192, processes: 80, openFiles: 256, fileSizeMb: 64, cpus: 1 }

describe('under limits', () => {
  let lab: SandboxLab
  let neighbour: LabSandbox
  beforeAll(async () => {
    lab = await SandboxLab.start()
    neighbour = await lab.startSandbox()
  })
  afterAll(() => lab?.dispose())

  const withSandbox = async (work: (sandbox: LabSandbox) => Promise<void>) => {
    const sandbox = await lab.startSandbox({ limits: LIMITS })
    try {
      await work(sandbox)
      expect((await neighbour.exec('echo fine')).stdout).toBe('fine\n')
    } finally {
      await sandbox.stop()
    }
  }
  /** The attempt may cost the sandbox its life; that is for the kernel to say. */
  const attempt = (sandbox: LabSandbox, command: string, timeoutMs = 8_000) =>
    sandbox.exec(command, timeoutMs).catch(() => undefined)

  const FORKS: [name: string, command: string][] = [
    ['a fork bomb', perl('for (1..500) { my $p = fork; if (defined $p && !$p) { sleep 3; exit } } sleep 1')],
    [
      'a fork bomb that leaves its session',
      perl(
        `use POSIX; for (1..500) { my $p = fork; if (defined $p && !$p) { POSIX::setsid(); fork; sleep 3; exit } } sleep 1`,
      ),
    ],
    [
      'a thread bomb',
      `node -e 'const { Worker } = require("node:worker_threads"); for (let i = 0; i < 200; i++) new Worker("setTimeout(() => {}, 1000)", { eval: true }).on("error", () => {})'`,
    ],
  ]
  test.each(FORKS)('%s stays below the number of processes', async (_, command) => {
    await withSandbox(async (sandbox) => {
      const running = attempt(sandbox, command, 3_000)
      let most = 0
      for (let i = 0; i < 20; i++) {
        most = Math.max(most, (await sandbox.process.usage().catch(() => ({ processes: 0 }))).processes)
        await sleep(50)
      }
      await running
      expect(most).toBeGreaterThan(10)
      expect(most).toBeLessThanOrEqual(LIMITS.processes)
    })
  })

  const MEMORY: [name: string, command: string][] = [
    ['one large piece', `perl -e 'my $x = "a" x 1_000_000_000'`],
    ['many small pieces', `perl -e 'my @x; push @x, "a" x 100 for 1..20_000_000'`],
    [
      'many processes',
      `for i in 1 2 3 4 5 6 7 8 9; do perl -e 'my $x = "a" x 60_000_000; sleep 1' & done; wait`,
    ],
    ['files in /tmp', 'for i in 1 2 3 4; do head -c 60000000 /dev/zero > /tmp/f$i; done'],
    [
      'files in /dev/shm',
      'head -c 300000000 /dev/zero > /dev/shm/a; cp /dev/shm/a /tmp/a; cp /dev/shm/a /tmp/b; cp /dev/shm/a /tmp/c',
    ],
    [
      'System V shared memory',
      perl(
        'for (1..10) { my $m = shmget(0, 40_000_000, 01666); shmwrite($m, "a" x 40_000_000, 0, 40_000_000) }',
      ),
    ],
    [
      'the page cache',
      'for i in 1 2 3 4 5 6; do head -c 60000000 /dev/zero > f$i; done; cat f* > /dev/null; rm f*',
    ],
    [
      'pipes and sockets',
      perl(
        'my (@p, $r, $w); for (1..120) { pipe $r, $w; fcntl $w, 1031, 1048576; $w->blocking(0); syswrite $w, "a" x 1048576; push @p, $r, $w; undef $r; undef $w }',
      ),
    ],
  ]
  test.each(MEMORY)('memory taken by %s stays below the limit', async (_, command) => {
    await withSandbox(async (sandbox) => {
      await attempt(sandbox, command)
      const { peakMemoryBytes } = await Promise.race([
        sandbox.exited.then(({ usage }) => usage),
        sandbox.process.usage(),
      ])
      expect(peakMemoryBytes).toBeGreaterThan(20 * MB)
      expect(peakMemoryBytes).toBeLessThanOrEqual(LIMITS.memoryMb * MB)
    })
  })

  test('a file stays below the largest size, written or with holes', async () => {
    await withSandbox(async (sandbox) => {
      await attempt(
        sandbox,
        'head -c 200000000 /dev/zero > full; truncate -s 10T sparse; fallocate -l 1T taken',
      )
      const { workspace } = sandbox.request.dirs
      const sizes = await Promise.all(
        (await readdir(workspace)).map(async (name) => (await stat(join(workspace, name))).size),
      )
      expect(Math.max(...sizes)).toBeLessThanOrEqual(LIMITS.fileSizeMb * MB)
    })
  })

  test('open files end at the limit, and the host has enough left', async () => {
    await withSandbox(async (sandbox) => {
      const hoard = perl('my @f; for (1..5000) { open my $f, "<", "/dev/null" or last; push @f, $f } sleep 5')
      const running = attempt(sandbox, `ulimit -n unlimited; ${hoard}`, 2_000)
      const most = async () => {
        const open = (await sandbox.processes()).map(({ pid }) => listDescriptors(pid).catch(() => []))
        return Math.max(...(await Promise.all(open)).map(({ length }) => length))
      }
      await expect.poll(most).toBe(LIMITS.openFiles)
      await running
    })
  })

  test('terminals that one takes are not missing to the host', async () => {
    await withSandbox(async (sandbox) => {
      const hoard = perl(
        'for (1..40) { next if fork; my @t; for (1..240) { open my $t, "+<", "/dev/ptmx" or last; push @t, $t } sleep 2; exit } sleep 1',
      )
      const running = attempt(sandbox, hoard, 4_000)
      await sleep(800)
      expect(
        execFileSync('script', ['-qec', 'echo a terminal', '/dev/null'], { encoding: 'utf8', input: '' }),
      ).toContain('a terminal')
      await running
    })
  })

  test('more processor time than allowed is not to be had', async () => {
    await withSandbox(async (sandbox) => {
      const before = (await sandbox.process.usage()).cpuMs
      const started = performance.now()
      await attempt(sandbox, 'for i in 1 2 3 4; do (while :; do :; done) & done; sleep 2; kill %1 %2 %3 %4')
      const used = (await sandbox.process.usage()).cpuMs - before
      expect(used / (performance.now() - started)).toBeLessThan(LIMITS.cpus * 1.25)
    })
  })

  test.each([
    ['its output', 'yes a line of output that goes on and on'],
    ['its errors', 'yes a line of errors >&2'],
    ['both, from many processes', 'for i in 1 2 3 4; do yes one & yes two >&2 & done; wait'],
    ['bytes that are no text', 'cat /dev/urandom'],
  ])(
    'a command that floods %s ends by its time limit, cut; the server’s memory is bounded',
    async (_, command) => {
      await withSandbox(async (sandbox) => {
        const before = process.memoryUsage().rss
        const result = await attempt(sandbox, command, 1_500)
        if (result) {
          expect(result).toMatchObject({ timedOut: true, truncated: true })
          expect(result.stdout.length).toBeLessThanOrEqual(MAX_EXEC_OUTPUT_BYTES)
        }
        expect(process.memoryUsage().rss - before).toBeLessThan(300 * MB)
      })
    },
  )

  test('after all of it no control group of these sandboxes is left', async () => {
    await neighbour.stop()
    const groups = execFileSync('find', ['/sys/fs/cgroup', '-type', 'd', '-name', `*lab-${process.pid}-*`], {
      encoding: 'utf8',
    })
    expect(groups).toBe('')
  })
})
