import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, open, readdir, readFile, rm, stat, statfs, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import {
  Budget,
  chooseDisk,
  createProvider,
  DEFAULT_LIMITS,
  type DiskBackend,
  LoopDisk,
  loadPrices,
  PolledDisk,
  type Runtime,
  type Sandbox,
  SandboxManager,
  type SandboxRequest,
  sessionDirs,
  stageRuntime,
} from '@ash-ai/sandbox'
import type { ExecResult } from '@ash-ai/shared'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { eventually } from '../integration/support/sandbox-processes.ts'
import { nextOwner } from './support/provider-fixture.ts'
import { workspaceRuntime } from './support/runtime-source.ts'

const run = promisify(execFile)
const isRoot = process.getuid?.() === 0
const DISK_MB = 32
const MB = 1024 * 1024

let dataDir: string
let agentDir: string
let runtime: Runtime
let made = 0
beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'ash-disk-'))
  await chmod(dataDir, 0o711)
  agentDir = join(dataDir, 'agent')
  for (const folder of [agentDir, join(dataDir, 'sandboxes')]) await mkdir(folder, { mode: 0o755 })
  await writeFile(join(agentDir, 'CLAUDE.md'), 'You are a test.\n')
  runtime = await stageRuntime(join(dataDir, 'runtime'), workspaceRuntime())
})
afterAll(() => rm(dataDir, { recursive: true, force: true }))

const live: Sandbox[] = []
afterEach(async () => {
  await Promise.all(live.splice(0).map((sandbox) => sandbox.stop()))
})

const newDirs = () => sessionDirs(dataDir, `disk-${process.pid}-${made++}`)

async function startSandbox(disk: DiskBackend, more: Partial<SandboxRequest> = {}) {
  const hits: { code: string; resource: string; limit: number }[] = []
  const dirs = more.dirs ?? newDirs()
  const manager = new SandboxManager({
    provider: createProvider('bwrap', undefined, disk.enforcement),
    disk,
    runtime,
    upstream: { baseUrl: 'http://127.0.0.1:9', apiKey: 'none' },
    modelIdleTimeoutMs: 10_000,
    env: {},
  })
  const sandbox = await manager.start({
    sandboxId: `disk-${process.pid}-${made++}`,
    dirs,
    agentDir,
    owner: nextOwner(),
    limits: { ...DEFAULT_LIMITS, diskMb: DISK_MB },
    network: { mode: 'none' },
    budget: new Budget(loadPrices()),
    onLimit: (hit) => hits.push(hit),
    setup: { sessionId: dirs.root, env: {} },
    ...more,
  })
  live.push(sandbox)
  const exec = async (command: string): Promise<ExecResult> =>
    (await sandbox.bridge.call({ cmd: 'exec', command, timeoutMs: 50_000 })) as ExecResult
  return { sandbox, dirs, hits, exec }
}

const mounts = async () =>
  (await readFile('/proc/self/mountinfo', 'utf8')).split('\n').filter((line) => line.includes(dataDir))
/** Loop devices that have a file of ours behind them, also one that is deleted. */
async function loopDevices(): Promise<string[]> {
  const files = (await readdir('/sys/block'))
    .filter((name) => name.startsWith('loop'))
    .map((name) => readFile(`/sys/block/${name}/loop/backing_file`, 'utf8').catch(() => ''))
  return (await Promise.all(files)).filter((file) => file.includes(dataDir))
}
async function expectNothingMounted() {
  expect(await mounts()).toEqual([])
  await eventually(loopDevices, (devices) => devices.length === 0)
}

describe.runIf(isRoot)('a disk that is an image', () => {
  let disk: LoopDisk
  beforeAll(async () => {
    disk = new LoopDisk()
  })
  afterEach(async () => {
    await Promise.all(live.splice(0).map((sandbox) => sandbox.stop()))
    await disk.close()
    disk = new LoopDisk()
    for (const id of await readdir(join(dataDir, 'sandboxes'))) await disk.remove(sessionDirs(dataDir, id))
    await expectNothingMounted()
  })
  afterAll(() => disk.close())

  test('is what this machine gives, and the probe leaves nothing', async () => {
    const chosen = await chooseDisk(dataDir)
    expect(chosen).toMatchObject({ name: 'loop', enforcement: 'hard' })
    expect(await readdir(join(dataDir, 'sandboxes'))).toEqual([])
    await expectNothingMounted()
    await chosen.close()
  })

  test('takes a large file until it is full; the log is told, and after deleting all goes on', async () => {
    const { exec, hits, dirs } = await startSandbox(disk)
    const { exitCode, stderr } = await exec('head -c 100M /dev/zero > big')
    expect(exitCode).not.toBe(0)
    expect(stderr).toContain('No space left on device')
    expect((await stat(join(dirs.workspace, 'big'))).size).toBeLessThan(DISK_MB * MB)
    expect((await exec('echo x > ~/more')).stderr).toContain('No space left on device')
    await eventually(
      () => hits,
      (all) => all.length > 0,
    )
    expect(hits).toEqual([{ code: 'disk_full', resource: 'diskMb', limit: DISK_MB, count: 1 }])
    expect((await exec('rm big; echo fits > small; cat small')).stdout).toBe('fits\n')
    // What the host gave is bounded too.
    expect((await stat(join(dirs.root, 'disk.img'))).blocks * 512).toBeLessThanOrEqual(DISK_MB * MB)
  })

  test('takes small files until blocks or inodes run out, whichever is first', async () => {
    const { exec, hits, dirs } = await startSandbox(disk)
    const { stderr } = await exec('i=0; while echo x > f$i; do i=$((i+1)); done')
    expect(stderr).toContain('No space left on device')
    const files = (await readdir(dirs.workspace)).length
    expect(files).toBeGreaterThan(1000)
    expect(files).toBeLessThanOrEqual(DISK_MB * 64)
    await eventually(
      () => hits,
      (all) => all.some(({ code }) => code === 'disk_full'),
    )
  })

  test('runs out of inodes by empty files, folders, links and pipes', async () => {
    const { exec, hits } = await startSandbox(disk)
    const { stderr } = await exec(
      'i=0; while mkdir d$i && ln -s x l$i && mkfifo p$i && : > e$i; do i=$((i+1)); done',
    )
    expect(stderr).toContain('No space left on device')
    expect((await exec('df --output=iavail . | tail -1')).stdout.trim()).toBe('0')
    await eventually(
      () => hits,
      (all) => all.some(({ code }) => code === 'disk_full'),
    )
  })

  test('lets a sparse file be as large as any file may be, and counts what is in it', async () => {
    const { exec } = await startSandbox(disk)
    expect((await exec('truncate -s 900M sparse && du -k sparse | cut -f1')).stdout.trim()).toBe('0')
    const { stderr } = await exec('dd if=/dev/zero of=sparse bs=1M count=100 seek=500 conv=notrunc')
    expect(stderr).toContain('No space left on device')
    expect((await exec('fallocate -l 100M at-once')).stderr).toContain('No space left on device')
  })

  test('counts a file that is deleted and still open', async () => {
    const { exec } = await startSandbox(disk)
    const script = 'exec 9> hidden; rm hidden; head -c 25M /dev/zero >&9; head -c 20M /dev/zero > other'
    expect((await exec(script)).stderr).toContain('No space left on device')
    // Closed with the shell: the room is there again.
    expect((await exec('rm other; head -c 20M /dev/zero > other; stat -c %s other')).stdout).toBe(
      '20971520\n',
    )
  })

  test('that one session fills is still empty for another', async () => {
    const [one, other] = await Promise.all([startSandbox(disk), startSandbox(disk)])
    expect((await one.exec('cat /dev/zero > big')).stderr).toContain('No space left on device')
    const { stdout } = await other.exec('head -c 10M /dev/zero > some; stat -c %s some; ls ..')
    expect(stdout).toContain('10485760\n')
    expect(other.hits).toEqual([])
  })

  test('has no set-user-ID programs and no devices, and the image is not inside', async () => {
    const { exec } = await startSandbox(disk)
    const { stdout } = await exec('cat /proc/self/mountinfo')
    const lines = stdout.split('\n').filter((line) => / \/(workspace|home\/ash) /.test(line))
    expect(lines).toHaveLength(2)
    for (const line of lines) {
      expect(line).toMatch(/nosuid/)
      expect(line).toMatch(/nodev/)
      expect(line).not.toContain(dataDir)
    }
    expect((await exec('find / -name disk.img -o -name lost+found 2>/dev/null')).stdout).toBe('')
    expect((await exec('ls /dev/loop* /dev/loop-control')).exitCode).not.toBe(0)
    expect((await exec('printf "#!/bin/sh\\necho runs\\n" > x; chmod +x x; ./x')).stdout).toBe('runs\n')
  })

  test('too small for the agent fails to start as disk_full, and leaves nothing running', async () => {
    const large = join(dataDir, 'large-agent')
    await mkdir(large)
    await writeFile(join(large, 'CLAUDE.md'), 'x'.repeat(40 * MB))
    await expect(startSandbox(disk, { agentDir: large })).rejects.toMatchObject({ code: 'disk_full' })
  })

  test('is mounted once, however many ask, and shows the same files without a sandbox', async () => {
    const { sandbox, dirs, exec } = await startSandbox(disk)
    await exec('echo kept > note.txt')
    await sandbox.stop()
    await disk.close()
    expect(existsSync(dirs.workspace)).toBe(false)
    await expectNothingMounted()
    disk = new LoopDisk()
    await Promise.all(Array.from({ length: 20 }, () => disk.ensureMounted(dirs)))
    expect(await mounts()).toHaveLength(1)
    expect(await readFile(join(dirs.workspace, 'note.txt'), 'utf8')).toBe('kept\n')
    const again = await startSandbox(disk, { dirs, owner: await ownerOf(dirs.workspace) })
    expect((await again.exec('cat note.txt')).stdout).toBe('kept\n')
  })

  test('many sessions at once have one each', async () => {
    const all = Array.from({ length: 20 }, newDirs)
    await Promise.all(all.map((dirs) => disk.acquire(dirs, 16)))
    expect(await mounts()).toHaveLength(20)
    await Promise.all(all.map((dirs) => disk.remove(dirs)))
    await expectNothingMounted()
    expect(await readdir(join(dataDir, 'sandboxes'))).toEqual([])
  })

  test('without a sandbox is unmounted after a while, not while a file is open, and comes back', async () => {
    await disk.close()
    disk = new LoopDisk({ idleMs: 50, sweepMs: 50 })
    const dirs = newDirs()
    await disk.acquire(dirs, DISK_MB)
    await writeFile(join(dirs.disk, 'note'), 'kept')
    await delay(300)
    expect(await mounts()).toHaveLength(1)
    const file = await open(join(dirs.disk, 'note'))
    disk.release(dirs)
    await delay(300)
    expect(await mounts()).toHaveLength(1)
    await file.close()
    await eventually(mounts, (all) => all.length === 0)
    await disk.ensureMounted(dirs)
    expect(await readFile(join(dirs.disk, 'note'), 'utf8')).toBe('kept')
  })

  test('goes away with the session even while somebody has a file open in it', async () => {
    const dirs = newDirs()
    await disk.acquire(dirs, DISK_MB)
    await writeFile(join(dirs.disk, 'note'), 'open')
    const file = await open(join(dirs.disk, 'note'))
    await disk.remove(dirs)
    expect(existsSync(dirs.root)).toBe(false)
    expect(await mounts()).toEqual([])
    await file.close()
    await expectNothingMounted()
  })

  test('that was taken away from an open file is mounted again as it was, unharmed', async () => {
    const dirs = newDirs()
    await disk.acquire(dirs, DISK_MB)
    const file = await open(join(dirs.disk, 'note'), 'w')
    await file.write('one ')
    await disk.close()
    expect(await mounts()).toEqual([])
    await file.write('two')
    disk = new LoopDisk()
    await disk.ensureMounted(dirs)
    expect(await loopDevices()).toHaveLength(1)
    expect(await readFile(join(dirs.disk, 'note'), 'utf8')).toBe('one two')
    await file.close()
    await disk.close()
    const { stdout } = await run('/sbin/e2fsck', ['-fn', join(dirs.root, 'disk.img')])
    expect(stdout).toContain('Pass 5')
  })

  test('asked for after its session has gone is not made again', async () => {
    const dirs = newDirs()
    await disk.acquire(dirs, DISK_MB)
    disk.release(dirs)
    await Promise.all([disk.remove(dirs), disk.ensureMounted(dirs), disk.ensureMounted(dirs)])
    expect(existsSync(dirs.root)).toBe(false)
  })

  test('that a killed server left mounted is unmounted by the next, with the files in it', async () => {
    const dirs = newDirs()
    const script = `
      import { LoopDisk } from '@ash-ai/sandbox'
      import { writeFileSync } from 'node:fs'
      const dirs = ${JSON.stringify(dirs)}
      await new LoopDisk().acquire(dirs, 16)
      writeFileSync(dirs.disk + '/note', 'kept')
      process.stdout.write('mounted')
      setInterval(() => {}, 1000)`
    const child = spawn(process.execPath, ['--conditions=development', '--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
      cwd: join(import.meta.dirname, '../..'),
    })
    await once(child.stdout, 'data')
    child.kill('SIGKILL')
    await once(child, 'exit')
    expect(await mounts()).toHaveLength(1)
    const next = await chooseDisk(dataDir)
    await expectNothingMounted()
    await next.ensureMounted(dirs)
    expect(await readFile(join(dirs.disk, 'note'), 'utf8')).toBe('kept')
    await next.remove(dirs)
    await next.close()
  })

  const readyOnes = async () =>
    (await readdir(join(dataDir, 'sandboxes'))).filter((name) => name.startsWith('.ready-'))

  test('for work that is over soon is made ahead of time, and moved to where it is needed', async () => {
    const [first, second] = [newDirs(), newDirs()]
    await disk.acquire(first, DISK_MB, { isBrief: true })
    await eventually(readyOnes, (names) => names.length === 3)
    const ready = await readyOnes()
    await disk.acquire(second, DISK_MB, { isBrief: true })
    expect(ready.filter((name) => !existsSync(join(dataDir, 'sandboxes', name)))).toHaveLength(1)
    expect((await mounts()).join()).toContain(second.disk)
    const { bsize, blocks } = await statfs(second.disk)
    expect(bsize * blocks).toBeLessThanOrEqual(DISK_MB * MB)
    expect((await readdir(second.disk)).sort()).toEqual(['.workspace', 'home', 'lost+found'])
    expect((await stat(second.root)).mode & 0o777).toBe(0o711)
    for (const dirs of [first, second]) {
      disk.release(dirs)
      await disk.remove(dirs)
    }
    await disk.close()
    expect(await readyOnes()).toEqual([])
    await expectNothingMounted()
  })

  test('made ahead of time is not moved over folders that are there', async () => {
    const [first, second] = [newDirs(), newDirs()]
    await disk.acquire(first, DISK_MB, { isBrief: true })
    await eventually(readyOnes, (names) => names.length === 3)
    await mkdir(second.run, { recursive: true })
    await writeFile(join(second.run, 'socket'), '')
    await disk.acquire(second, DISK_MB, { isBrief: true })
    expect((await mounts()).join()).toContain(second.disk)
    expect(existsSync(join(second.run, 'socket'))).toBe(true)
  })

  test('holds an interpreter to its size, and gives back what the next can use', async () => {
    const manager = new SandboxManager({
      provider: createProvider('bwrap', undefined, disk.enforcement),
      disk,
      runtime,
      upstream: { baseUrl: 'http://127.0.0.1:9', apiKey: 'none' },
      modelIdleTimeoutMs: 10_000,
      env: {},
    })
    for (let round = 0; round < 2; round++) {
      const dirs = newDirs()
      const interpreter = await manager.startInterpreter({
        sandboxId: `disk-${process.pid}-${made++}`,
        language: 'python',
        dirs,
        owner: nextOwner(),
        limits: { ...DEFAULT_LIMITS, diskMb: DISK_MB },
      })
      const code = 'with open("big", "wb") as f:\n  while True: f.write(bytes(1_000_000))'
      const outcome = await interpreter.run({ kind: 'script', code, timeoutMs: 20_000 }, () => {})
      expect(outcome).toMatchObject({ status: 'failed', error: { name: 'OSError' } })
      expect(outcome.error?.message).toContain('No space left on device')
      await interpreter.stop()
      expect((await stat(join(dirs.workspace, 'big'))).size).toBeLessThan(DISK_MB * MB)
      await disk.remove(dirs)
      expect(existsSync(dirs.root)).toBe(false)
    }
  })

  test('that a crash of the machine left in disorder is repaired before it is mounted', async () => {
    const dirs = newDirs()
    await disk.acquire(dirs, DISK_MB)
    await writeFile(join(dirs.disk, 'note'), 'kept')
    await run('sync', ['-f', dirs.disk])
    const image = join(dirs.root, 'disk.img')
    const crashed = await readFile(image)
    await disk.close()
    await writeFile(image, crashed)
    disk = new LoopDisk()
    await disk.ensureMounted(dirs)
    expect(await readFile(join(dirs.disk, 'note'), 'utf8')).toBe('kept')
    await disk.close()
    expect((await run('/sbin/e2fsck', ['-fn', image])).stdout).toContain('Pass 5')
  })

  test('of a session made without images stays a folder, and is counted', async () => {
    const dirs = newDirs()
    const first = await startSandbox(new PolledDisk(), { dirs })
    await first.exec('echo kept > note.txt')
    await first.sandbox.stop()
    const second = await startSandbox(disk, { dirs, owner: await ownerOf(dirs.workspace) })
    expect((await second.exec('cat note.txt')).stdout).toBe('kept\n')
    expect(existsSync(join(dirs.root, 'disk.img'))).toBe(false)
    await second.exec('head -c 40M /dev/zero > big')
    expect(await second.sandbox.bridge.closed).toMatchObject({ code: 'disk_full' })
  })
})

async function ownerOf(path: string) {
  const { uid, gid } = await stat(path)
  return { uid, gid }
}

describe('a disk that is counted', () => {
  test('stops the sandbox that takes more than its share, and says why; the next start works', async () => {
    const disk = new PolledDisk()
    const { sandbox, exec, hits, dirs } = await startSandbox(disk)
    expect((await exec('head -c 40M /dev/zero > big; echo written')).stdout).toBe('written\n')
    expect(await sandbox.bridge.closed).toMatchObject({ code: 'disk_full' })
    await sandbox.exited
    expect(hits).toMatchObject([{ code: 'disk_full', resource: 'diskMb', limit: DISK_MB }])
    await rm(join(dirs.workspace, 'big'))
    const again = await startSandbox(disk, { dirs, ...(isRoot && { owner: await ownerOf(dirs.workspace) }) })
    expect((await again.exec('echo fine')).stdout).toBe('fine\n')
    await again.sandbox.stop()
    await disk.remove(dirs)
    expect(existsSync(dirs.root)).toBe(false)
  })

  test('counts many small files too', async () => {
    const disk = new PolledDisk()
    const { sandbox, exec, dirs } = await startSandbox(disk)
    await exec(`for i in $(seq 1 ${DISK_MB * 64}); do : > f$i; done`)
    expect(await sandbox.bridge.closed).toMatchObject({ code: 'disk_full' })
    await sandbox.exited
    await disk.remove(dirs)
  })
})
