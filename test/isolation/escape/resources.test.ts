import { execFileSync } from 'node:child_process'
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { listDescriptors, type ProcessInfo } from '@ash-ai/sandbox/testing'
import { MAX_EXEC_OUTPUT_BYTES, UNSOLICITED } from '@ash-ai/shared'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { perl } from '../support/host-victim.ts'
import { type HostedSandbox, LabHost } from '../support/lab-host.ts'
import type { WantedSandbox } from '../support/lab-process.ts'
import { KINDS_WITH_GROUPS, SERVER_KINDS, type ServerKind, UNPRIVILEGED } from '../support/server-kinds.ts'

// Attempts to use up the host. The control group, read from outside, says what was used; a neighbour and the server
// must not notice. Without control groups the rest still holds, and the server says what does not.

const MB = 1024 * 1024
const FLOOD_MESSAGES = 11 * 1024
const LIMITS = { memoryMb: 192, processes: 80, openFiles: 256, fileSizeMb: 64, cpus: 1 }

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

/** A neighbour for whoever is attacked, and a place for attempts. */
function useLab(kind: ServerKind) {
  let lab: LabHost
  let neighbour: HostedSandbox
  beforeAll(async () => {
    lab = await LabHost.start(kind)
    neighbour = await lab.startSandbox()
  })
  afterAll(() => lab?.dispose())
  return {
    lab: () => lab,
    neighbour: () => neighbour,
    /** Runs an attempt in a sandbox of its own. */
    async withSandbox(wanted: WantedSandbox, work: (sandbox: HostedSandbox) => Promise<void>) {
      const sandbox = await lab.startSandbox({ ...wanted, limits: { ...LIMITS, ...wanted.limits } })
      try {
        await work(sandbox)
        expect((await neighbour.exec('echo fine')).stdout).toBe('fine\n')
      } finally {
        await sandbox.stop()
      }
    },
  }
}

/** The attempt may cost the sandbox its life; that is for the kernel to say. */
const attempt = (sandbox: HostedSandbox, command: string, timeoutMs = 8_000) =>
  sandbox.exec(command, timeoutMs).catch(() => undefined)

describe.each(KINDS_WITH_GROUPS)('by control groups, under a server run by $name,', (kind) => {
  const { lab, withSandbox } = useLab(kind)

  test.each(FORKS)('%s stays below the number of processes', async (_, command) => {
    await withSandbox({}, async (sandbox) => {
      void attempt(sandbox, command, 20_000)
      let most = 0
      for (let i = 0; i < 20; i++) {
        most = Math.max(most, (await sandbox.usage().catch(() => ({ processes: 0 }))).processes)
        await sleep(50)
      }
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
    await withSandbox({}, async (sandbox) => {
      await attempt(sandbox, command)
      const { peakMemoryBytes } = await sandbox.usage()
      expect(peakMemoryBytes).toBeGreaterThan(20 * MB)
      expect(peakMemoryBytes).toBeLessThanOrEqual(LIMITS.memoryMb * MB)
    })
  })

  test('more processor time than allowed is not to be had', async () => {
    await withSandbox({}, async (sandbox) => {
      const before = (await sandbox.usage()).cpuMs
      const started = performance.now()
      await attempt(sandbox, 'for i in 1 2 3 4; do (while :; do :; done) & done; sleep 2; kill %1 %2 %3 %4')
      const used = (await sandbox.usage()).cpuMs - before
      expect(used / (performance.now() - started)).toBeLessThan(LIMITS.cpus * 1.25)
    })
  })

  test('after all of it no control group of these sandboxes is left', async () => {
    await lab().dispose()
    const groups = execFileSync('find', ['/sys/fs/cgroup', '-type', 'd', '-name', `*lab-${lab().pid}*`], {
      encoding: 'utf8',
    })
    expect(groups).toBe('')
  })
})

describe.each(SERVER_KINDS)('by any means, under a server run by $name,', (kind) => {
  const { lab, neighbour, withSandbox } = useLab(kind)

  test('a file stays below the largest size, written or with holes', async () => {
    await withSandbox({}, async (sandbox) => {
      await attempt(
        sandbox,
        'head -c 200000000 /dev/zero > full; truncate -s 10T sparse; fallocate -l 1T taken',
      )
      const { workspace } = sandbox.dirs
      const sizes = await Promise.all(
        (await readdir(workspace)).map(async (name) => (await stat(join(workspace, name))).size),
      )
      expect(Math.max(...sizes)).toBeLessThanOrEqual(LIMITS.fileSizeMb * MB)
    })
  })

  test('open files end at the limit, and the host has enough left', async () => {
    await withSandbox({}, async (sandbox) => {
      const hoard = perl(
        'my @f; for (1..5000) { open my $f, "<", "/dev/null" or last; push @f, $f } sleep 20',
      )
      void attempt(sandbox, `ulimit -n unlimited; ${hoard}`, 20_000)
      const most = async () => {
        const open = (await sandbox.processes()).map(({ pid }) => listDescriptors(pid).catch(() => []))
        return Math.max(...(await Promise.all(open)).map(({ length }) => length))
      }
      await expect.poll(most, { timeout: 15_000 }).toBe(LIMITS.openFiles)
    })
  })

  test('terminals that one takes are not missing to the host', async () => {
    await withSandbox({}, async (sandbox) => {
      const hoard = perl(
        'for (1..40) { next if fork; my @t; for (1..240) { open my $t, "+<", "/dev/ptmx" or last; push @t, $t } sleep 2; exit } sleep 1',
      )
      void attempt(sandbox, hoard, 20_000)
      await sleep(800)
      expect(
        execFileSync('script', ['-qec', 'echo a terminal', '/dev/null'], { encoding: 'utf8', input: '' }),
      ).toContain('a terminal')
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
      await withSandbox({}, async (sandbox) => {
        const before = await lab().residentBytes()
        const result = await attempt(sandbox, command, 700)
        if (result) {
          expect(result).toMatchObject({ timedOut: true, truncated: true })
          expect(result.stdout.length).toBeLessThanOrEqual(MAX_EXEC_OUTPUT_BYTES)
        }
        expect((await lab().residentBytes()) - before).toBeLessThan(300 * MB)
      })
    },
  )

  /** Sends 11 MB as one turn, 1 KB at a time, as fast as the host takes it. */
  const FLOODING_BRIDGE = `const { Socket } = await import('node:net');
    const socket = new Socket({ fd: 3, readable: true, writable: true });
    const say = (event) => socket.write(JSON.stringify(event) + '\\n');
    const drained = () => new Promise((done) => socket.once('drain', done));
    let text = '';
    socket.setEncoding('utf8').on('data', async (more) => {
      const lines = (text + more).split('\\n'); text = lines.pop();
      for (const { cmd, id } of lines.map((line) => JSON.parse(line))) {
        if (cmd === 'ping') say({ ev: 'pong', id });
        else if (cmd !== 'query') say({ ev: 'result', id, data: {} });
        else {
          const data = { type: 'stream_event', text: 'x'.repeat(1024) };
          for (let i = 0; i < ${FLOOD_MESSAGES}; i++) if (!say({ ev: 'message', id, data })) await drained();
          say({ ev: 'done', id, data: { stopReason: 'end_turn' } });
        }
      }
    });
    say({ ev: 'ready', id: '${UNSOLICITED}' })`
  test('a turn that floods is slowed down and told; all of it arrives, and a neighbour is not held up', async () => {
    const limits = { outputMbPerSecond: 1 }
    await withSandbox({ limits, bridge: FLOODING_BRIDGE }, async (sandbox) => {
      const before = await lab().residentBytes()
      const turn = sandbox.turn()
      expect(await Promise.race([turn, neighbour().exec('echo fine')])).toMatchObject({ stdout: 'fine\n' })
      expect(await turn).toEqual({ messages: FLOOD_MESSAGES, last: 'done' })
      await expect
        .poll(async () => (await sandbox.heard()).limits, { timeout: 10_000 })
        .toEqual([{ code: 'output_limit', resource: 'outputMbPerSecond', limit: 1, count: 1 }])
      expect((await lab().residentBytes()) - before).toBeLessThan(200 * MB)
    })
  })
})

/** bwrap itself, which is partly outside. */
const BWRAP_PROCESSES = 2
async function countThreads(processes: ProcessInfo[]): Promise<number> {
  const counts = processes.map(async ({ pid }) => (await readdir(`/proc/${pid}/task`).catch(() => [])).length)
  return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0)
}

describe('without control groups, under a server run by an unprivileged user,', () => {
  const { lab, withSandbox } = useLab(UNPRIVILEGED)

  test('what cannot be limited is said', () => {
    const enforcement = {
      memoryMb: 'none',
      cpus: 'none',
      processes: 'hard',
      openFiles: 'hard',
      fileSizeMb: 'hard',
    }
    expect(lab().limits).toEqual({ backend: 'rlimit', enforcement })
  })

  test.each(FORKS)('%s stays below the number of processes', async (_, command) => {
    await withSandbox({}, async (sandbox) => {
      // Of the same user, and yet not counted: the neighbour, and what the server has beside.
      void attempt(sandbox, command, 20_000)
      let most = 0
      for (let i = 0; i < 20; i++) {
        most = Math.max(most, await countThreads(await sandbox.processes()))
        await sleep(50)
      }
      expect(most).toBeGreaterThan(40)
      expect(most).toBeLessThanOrEqual(LIMITS.processes + BWRAP_PROCESSES)
    })
  })

  test('files in memory end at the size of their file system', async () => {
    await withSandbox({ limits: { fileSizeMb: 1024 } }, async (sandbox) => {
      await attempt(sandbox, 'for d in /tmp /dev/shm; do head -c 400000000 /dev/zero > $d/a; done')
      const inside = (await sandbox.processes()).at(-1)?.pid
      const taken = async (folder: string) => (await stat(`/proc/${inside}/root${folder}/a`)).size / MB
      expect([await taken('/tmp'), await taken('/dev/shm')]).toEqual([256, 64])
    })
  })

  test('a disk that is filled ends the sandbox', async () => {
    await withSandbox({ limits: { diskMb: 32, fileSizeMb: 1024 } }, async (sandbox) => {
      void attempt(sandbox, 'head -c 100000000 /dev/zero > big; sleep 60', 60_000)
      expect(await sandbox.ended()).toBe('disk_full')
      expect((await sandbox.heard()).limits).toMatchObject([
        { code: 'disk_full', resource: 'diskMb', limit: 32 },
      ])
    })
  })
})
