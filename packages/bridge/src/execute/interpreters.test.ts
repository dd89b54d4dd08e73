import { rmSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isAshError, type RunRequest } from '@ash-ai/shared'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { buildKernels } from '../kernels/testing/kernel-process.ts'
import { Interpreters } from './interpreters.ts'
import { readProcess } from './process-table.ts'

const ENV = { PATH: '/usr/bin:/bin', OWN: 'value' }

let kernels: string
beforeAll(() => {
  kernels = buildKernels()
})
afterAll(() => rmSync(kernels, { recursive: true }))

async function makeInterpreters() {
  const dir = await mkdtemp(join(tmpdir(), 'ash-interpreters-'))
  const interpreters = new Interpreters(dir, kernels)
  onTestFinished(async () => {
    await interpreters.close()
    await rm(dir, { recursive: true, force: true })
  })
  const execute = async (
    interpreter: string,
    code: string,
    more: Partial<RunRequest> = {},
    onOutput = () => {},
  ) => {
    const output = { stdout: '', stderr: '', result: '', display: [] as unknown[] }
    const request: RunRequest = { kind: 'code', code, timeoutMs: 10_000, ...more }
    const outcome = await interpreters.execute(
      { cmd: 'execute', id: '1', interpreter, request, maxOutputBytes: 1_000_000 },
      ({ stream, data }) => {
        if (stream === 'display') output.display.push(JSON.parse(data))
        else output[stream] += data
        onOutput()
        return undefined
      },
    )
    return { ...outcome, ...output }
  }
  return { interpreters, execute, dir }
}

const isAlive = (pid: number) => readProcess(pid) !== undefined
const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => 'none',
    (error: unknown) => (isAshError(error) ? error.code : error),
  )

test('code runs in the workspace, with the environment, and keeps what it knows', async () => {
  const { interpreters, execute, dir } = await makeInterpreters()
  const { interpreter, pid } = await interpreters.start('python', ENV)
  expect(isAlive(pid)).toBe(true)
  expect(
    await execute(interpreter, 'import os; x = 41; print(os.getcwd(), os.environ["OWN"])'),
  ).toMatchObject({
    status: 'completed',
    stdout: `${dir} value\n`,
    isOver: false,
  })
  const second = await execute(interpreter, '"é" * (x + 300_000)')
  expect(JSON.parse(second.result)).toBe('é'.repeat(300_041))
  expect(second.display).toMatchObject([{ value: true }])
  expect(second.metrics.peakMemoryBytes).toBeGreaterThan(1_000_000)
})

test('the CPU time of a run is its own', async () => {
  const { interpreters, execute } = await makeInterpreters()
  const { interpreter } = await interpreters.start('python', ENV)
  const busy = 'import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass'
  expect((await execute(interpreter, busy)).metrics.cpuMs).toBeGreaterThanOrEqual(250)
  expect((await execute(interpreter, '1')).metrics.cpuMs).toBeLessThan(100)
})

test('a script that has ended has still used something', async () => {
  const { interpreters, execute } = await makeInterpreters()
  const { interpreter } = await interpreters.start('shell', ENV)
  const { metrics, ...outcome } = await execute(
    interpreter,
    'timeout 0.6 sh -c "while :; do :; done"; exit 3',
  )
  expect(outcome).toMatchObject({ status: 'failed', exitCode: 3, isOver: true })
  expect(metrics.cpuMs).toBeGreaterThan(100)
  expect(metrics.peakMemoryBytes).toBeGreaterThan(100_000)
})

test('a run that takes too long is killed with all it started, also a daemon', async () => {
  const { interpreters, execute, dir } = await makeInterpreters()
  const { interpreter, pid } = await interpreters.start('python', ENV)
  const code = `import subprocess, time
subprocess.run("(setsid sh -c 'echo $$ > daemon; exec sleep 1000' &)", shell=True)
print("begun", flush=True)
while True: time.sleep(1)`
  expect(await execute(interpreter, code, { timeoutMs: 1_000 })).toMatchObject({
    status: 'timeout',
    stdout: 'begun\n',
    isOver: true,
  })
  const daemon = Number(await readFile(join(dir, 'daemon'), 'utf8'))
  expect([isAlive(pid), isAlive(daemon)]).toEqual([false, false])
  expect(await codeOf(execute(interpreter, '1'))).toBe('interpreter_gone')
})

test('an interrupt ends the run and keeps the interpreter', async () => {
  const { interpreters, execute } = await makeInterpreters()
  const { interpreter } = await interpreters.start('python', ENV)
  await execute(interpreter, 'x = 1')
  const code = 'import time; x = 2; print(flush=True); time.sleep(1000)'
  const outcome = await execute(interpreter, code, {}, () => interpreters.interrupt(interpreter))
  expect(outcome).toMatchObject({ status: 'cancelled', isOver: false })
  expect(await execute(interpreter, 'x')).toMatchObject({ status: 'completed', result: '2' })
})

test('a stopped one is gone, and its run cancelled', async () => {
  const { interpreters, execute } = await makeInterpreters()
  const { interpreter, pid } = await interpreters.start('shell', ENV)
  const running = execute(interpreter, 'sleep 1000')
  await interpreters.stop(interpreter)
  expect(await running).toMatchObject({ status: 'cancelled', isOver: true })
  expect(isAlive(pid)).toBe(false)
  await interpreters.stop(interpreter)
  expect(await codeOf(execute(interpreter, ''))).toBe('interpreter_gone')
})

test('one that died between runs is gone, and makes room', async () => {
  const { interpreters, execute } = await makeInterpreters()
  const { interpreter, pid } = await interpreters.start('python', ENV)
  process.kill(pid, 'SIGKILL')
  await expect.poll(() => isAlive(pid)).toBe(false)
  await expect.poll(() => codeOf(execute(interpreter, '1'))).toBe('interpreter_gone')
})

test('there is a limit to how many there are at once', async () => {
  const { interpreters } = await makeInterpreters()
  const starts = Array.from({ length: 21 }, () => codeOf(interpreters.start('shell', ENV)))
  expect((await Promise.all(starts)).filter((code) => code !== 'none')).toEqual(['too_many_kernels'])
  await interpreters.close()
  expect(await codeOf(interpreters.start('shell', ENV))).toBe('none')
})

test('a flood of output is bounded, and its sender held back', async () => {
  const { interpreters } = await makeInterpreters()
  const { interpreter } = await interpreters.start('shell', ENV)
  const before = process.memoryUsage().rss
  let chars = 0
  const outcome = await interpreters.execute(
    {
      cmd: 'execute',
      id: '1',
      interpreter,
      request: { kind: 'script', code: 'yes', timeoutMs: 1_000 },
      maxOutputBytes: 1_000_000,
    },
    async ({ data }) => {
      await new Promise((resolve) => setImmediate(resolve))
      chars += data.length
    },
  )
  expect(outcome).toMatchObject({ status: 'timeout', truncated: true })
  expect(chars).toBe(1_000_000)
  expect(process.memoryUsage().rss - before).toBeLessThan(100 * 1024 * 1024)
})

test('without Python it says what to install', async () => {
  const { interpreters } = await makeInterpreters()
  await expect(interpreters.start('python', { PATH: '/nonexistent' })).rejects.toMatchObject({
    code: 'interpreter_missing',
    message: expect.stringContaining('python3 is not installed'),
  })
})

test('the Python of a virtual environment comes first', async () => {
  const { interpreters, execute, dir } = await makeInterpreters()
  await mkdir(join(dir, 'bin'))
  await symlink('/usr/bin/python3', join(dir, 'bin', 'python'))
  const { interpreter } = await interpreters.start('python', { ...ENV, VIRTUAL_ENV: dir })
  const { result } = await execute(interpreter, 'import sys; sys.executable')
  expect(JSON.parse(result)).toBe(join(dir, 'bin', 'python'))
})

test.each(['python', 'javascript'] as const)(
  '%s goes first when memory runs out, with what it starts',
  async (language) => {
    const { interpreters, execute } = await makeInterpreters()
    const { interpreter } = await interpreters.start(language, ENV)
    const code = {
      python: 'import os; os.system("cat /proc/self/oom_score_adj")',
      javascript:
        'process.stdout.write(require("child_process").execSync("cat /proc/self/oom_score_adj")); process.env.PWD ?? "none"',
    }
    const { stdout, result } = await execute(interpreter, code[language])
    expect(stdout).toMatch(/^1000\n/)
    if (language === 'javascript') expect(result).toBe('"none"')
  },
)

test.each([
  ['python', 'for n in ("stdout", "stderr"):\n  with open("/dev/" + n, "w") as f: f.write(n)'],
  ['javascript', 'for (const n of ["stdout", "stderr"]) require("fs").writeFileSync("/dev/" + n, n)'],
  ['shell', 'for n in stdout stderr; do printf $n > /dev/$n; done'],
] as const)('%s may open its outputs by name', async (language, code) => {
  const { interpreters, execute } = await makeInterpreters()
  const { interpreter } = await interpreters.start(language, ENV)
  expect(await execute(interpreter, code)).toMatchObject({
    status: 'completed',
    stdout: 'stdout',
    stderr: 'stderr',
  })
})

test('one that was started early keeps the variables of its session, not those of a run', async () => {
  const { interpreters, execute } = await makeInterpreters()
  await interpreters.startEarly('python', { ...ENV, EARLY: '1' })
  const { interpreter } = await interpreters.start('python', { ...ENV, LATE: '1' })
  const code = 'import os\n[os.environ.get(name) for name in ("EARLY", "LATE", "RUN")]'
  expect((await execute(interpreter, code, { env: { RUN: '1' } })).result).toBe('["1","1","1"]')
  expect((await execute(interpreter, code)).result).toBe('["1","1",null]')
})

test('a variable of the session does not take the place of the mark', async () => {
  const { interpreters, execute } = await makeInterpreters()
  const { interpreter } = await interpreters.start('shell', { ...ENV, ASH_RUN: 'other' })
  expect((await execute(interpreter, 'echo $ASH_RUN; cat /proc/$$/oom_score_adj')).stdout).toBe(
    `${interpreter}\n1000\n`,
  )
})
