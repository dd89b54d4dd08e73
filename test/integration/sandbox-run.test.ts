import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { BARE_ENV, ROOT } from './support/run-process.ts'

const BIN = join(ROOT, 'packages/cli/bin/sandbox-run.cjs')
/** The same as the servers of other tests: staging takes longer than a handler. */
const RUNTIME_DIR = join(tmpdir(), 'ash-test-runtime')
const TIMEOUT_MS = 60_000

let dir: string
let home: string
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'ash-sandbox-run-'))
  home = join(dir, 'nobody')
})
afterAll(() => rm(dir, { recursive: true, force: true }))

interface RunOptions {
  input?: string
  env?: Record<string, string>
  cwd?: string
}

function start(args: string[], { env = {}, cwd = dir }: RunOptions = {}): ChildProcess {
  return spawn(process.execPath, ['--conditions=development', BIN, ...args], {
    cwd,
    env: { ...BARE_ENV, HOME: home, ASH_RUNTIME_DIR: RUNTIME_DIR, TMPDIR: tmpdir(), ...env },
    timeout: TIMEOUT_MS,
  })
}

async function finish(child: ChildProcess, input = '') {
  const { stdin, stdout, stderr } = child
  if (!stdin || !stdout || !stderr) throw new Error('a child without pipes')
  stdin.on('error', () => {}).end(input)
  const [[code], out, err] = await Promise.all([once(child, 'close'), text(stdout), text(stderr)])
  return { code: code as number | null, stdout: out, stderr: err }
}

const sandboxRun = (args: string[], options: RunOptions = {}) => finish(start(args, options), options.input)

async function script(name: string, code: string): Promise<string> {
  await writeFile(join(dir, name), code)
  return name
}

const ECHO =
  'def handler(event, context):\n    print("hi")\n    return {"event": event, "name": context.function_name}\n'

test('0: a handler gets its event and returns its result', async () => {
  const file = await script('echo.py', ECHO)
  const { code, stdout } = await sandboxRun([file, '--event', '{"data": "test"}', '--format', 'json'])
  expect(code).toBe(0)
  expect(JSON.parse(stdout)).toEqual({
    exit_code: 0,
    stdout: 'hi\n',
    stderr: '',
    result: { event: { data: 'test' }, name: 'echo' },
    metrics: {
      duration_ms: expect.any(Number),
      cpu_time_ms: expect.any(Number),
      memory_peak_mb: expect.any(Number),
    },
  })
})

test.each([
  ['a.js', 'exports.handler = async (event) => ({ sum: event.a + 1 })'],
  ['a.mjs', 'export const handler = (event, context) => ({ sum: event.a + 1 })'],
])('%s is JavaScript; the event may come by stdin', async (name, code) => {
  const file = await script(name, code)
  expect(await sandboxRun([file, '-f', '-', '-q', '--format', 'json'], { input: '{"a": 2}' })).toMatchObject({
    code: 0,
    stdout: '{"sum":3}\n',
  })
})

test('1: what the handler raises is told, with what it said before', async () => {
  const file = await script(
    'raises.py',
    'def handler(event):\n    print("before")\n    raise ValueError("no")\n',
  )
  const { code, stdout } = await sandboxRun([file])
  expect(code).toBe(1)
  expect(stdout).toMatch(/^STDOUT\nbefore\n\nERROR\nTraceback[\s\S]*ValueError: no\n$/)
  expect(await sandboxRun([file, '-q'])).toMatchObject({
    code: 1,
    stdout: '',
    stderr: 'sandbox-run: ValueError: no\n',
  })
})

test('1: what the command line does not know', async () => {
  const file = await script('echo.py', ECHO)
  for (const args of [
    [],
    [file, '--nonsense'],
    [file, '-t', '0'],
    [file, '-e', '{}', '-f', 'x'],
    [file, '-v', '-q'],
  ])
    expect((await sandboxRun(args)).code, args.join(' ')).toBe(1)
})

test('2: a file that cannot be read, an event that is no JSON object', async () => {
  const file = await script('echo.py', ECHO)
  await script('other.txt', ECHO)
  const cases = [
    ['none.py'],
    ['other.txt'],
    [file, '-e', '{'],
    [file, '-e', '[1]'],
    [file, '-f', 'none.json'],
  ]
  for (const args of cases) expect((await sandboxRun(args)).code, args.join(' ')).toBe(2)
})

test('3: a syntax error, or no handler', async () => {
  const files = [
    await script('bad.py', 'def handler(event:\n'),
    await script('bad.mjs', 'export const handler = (event => {'),
    await script('empty.py', 'x = 1\n'),
    await script('empty.mjs', 'const x = 1'),
  ]
  for (const file of files) expect((await sandboxRun([file])).code, file).toBe(3)
  const file = await script('evals.py', 'def handler(event):\n    eval("1 +")\n')
  expect((await sandboxRun([file])).code).toBe(1)
})

test('4: a time-out, by option or in the event, with what was said until then', async () => {
  const file = await script(
    'slow.py',
    'import time\ndef handler(event):\n    print("begun", flush=True)\n    time.sleep(60)\n',
  )
  const byOption = await sandboxRun([file, '-t', '0.5', '--format', 'json'])
  expect(byOption.code).toBe(4)
  expect(JSON.parse(byOption.stdout)).toMatchObject({ exit_code: 4, stdout: 'begun\n', result: null })
  expect((await sandboxRun([file, '-e', '{"__timeout": 0.5}'])).code).toBe(4)
})

/** Where the user of a sandbox can pass through, and nobody else puts anything. */
async function makeTemp(): Promise<string> {
  const temp = await mkdtemp(join(dir, 'tmp-'))
  for (const folder of [dir, temp]) await chmod(folder, 0o711)
  return temp
}

test('5: no sandbox, and nothing left of the attempt', async () => {
  const file = await script('echo.py', ECHO)
  const temp = await makeTemp()
  const env = { ASH_RUNTIME_DIR: '/dev/null/nowhere', TMPDIR: temp }
  const { code, stderr } = await sandboxRun([file], { env })
  expect(code).toBe(5)
  expect(stderr).toContain('/dev/null/nowhere')
  expect(await readdir(temp)).toEqual([])
})

test('130: Ctrl-C ends the handler and leaves nothing behind', async () => {
  const file = await script(
    'waits.py',
    `import subprocess, sys\ndef handler(event):\n    subprocess.run(["sleep", "61"])\n`,
  )
  const temp = await makeTemp()
  const child = start([file], { env: { TMPDIR: temp } })
  const ended = finish(child)
  await expect.poll(() => runsInside('sleep\0' + '61'), { timeout: 30_000 }).toBe(true)
  expect(await readdir(temp)).toHaveLength(1)
  child.kill('SIGINT')
  expect((await ended).code).toBe(130)
  expect(await runsInside('sleep\0' + '61')).toBe(false)
  expect(await readdir(temp)).toEqual([])
})

async function runsInside(command: string): Promise<boolean> {
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const line = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
    if (line.startsWith(command)) return true
  }
  return false
}

test('137: out of memory, as .sandboxrc.json sets it', async () => {
  const cwd = await mkdtemp(join(dir, 'rc-'))
  await writeFile(join(cwd, '.sandboxrc.json'), JSON.stringify({ sandbox: { memory_limit: 131072 } }))
  await writeFile(join(cwd, 'eats.py'), 'def handler(event):\n    return len(bytearray(1_000_000_000))\n')
  const { code, stdout } = await sandboxRun(['eats.py', '-v'], { cwd })
  // Without control groups the allocation itself is refused.
  expect(code).toBe(stdout.includes('rlimit') ? 1 : 137)
})

test('.sandboxrc.json of the folder, else of the home, gives defaults; options win', async () => {
  const cwd = await mkdtemp(join(dir, 'rc-'))
  const other = await mkdtemp(join(dir, 'home-'))
  const settings = {
    cli: { default_format: 'yaml', show_profile: true, default_timeout: 5 },
    logging: { level: 'INFO' },
  }
  await writeFile(join(other, '.sandboxrc.json'), JSON.stringify(settings))
  await writeFile(join(cwd, 'echo.py'), ECHO)
  const options = { cwd, env: { HOME: other } }
  const byHome = await sandboxRun(['echo.py'], options)
  expect(byHome.stdout).toMatch(/^exit_code: 0\nstdout: \|\n {2}hi\nstderr: ""\nresult:\n {2}event: \{\}\n/)
  expect(byHome.stderr).toMatch(/^INFO completed/)
  expect((await sandboxRun(['echo.py', '--format', 'pretty'], options)).stdout).toContain('METRICS')

  await writeFile(join(cwd, '.sandboxrc.json'), JSON.stringify({ sandbox: { allow_network: true } }))
  const byFolder = await sandboxRun(['echo.py'], options)
  expect(byFolder.stdout).toMatch(/^STDOUT\n/)
  expect(byFolder.stderr).toMatch(/^WARNING .*allow_network/)
  await writeFile(join(cwd, '.sandboxrc.json'), '{ "cli": ')
  expect((await sandboxRun(['echo.py'], options)).code).toBe(2)
})

test('verbose details, an output file, a large number, no network', async () => {
  const file = await script(
    'net.py',
    'import socket\ndef handler(event):\n    try:\n        socket.create_connection(("1.1.1.1", 53), 2)\n        return "out"\n    except OSError:\n        return 2**80\n',
  )
  const { stdout } = await sandboxRun([file, '-v', '-o', 'out.txt'])
  expect(stdout).toMatch(
    /^RESULT\n1208925819614629174706176\n\nDETAILS\ntimestamp {5}\d{4}-[\s\S]*result type {3}number\n/,
  )
  expect(await readFile(join(dir, 'out.txt'), 'utf8')).toBe(stdout)
  expect((await sandboxRun(['--version'])).stdout).toMatch(/^sandbox-run \d+\.\d+\.\d+\n$/)
  expect((await sandboxRun(['--help'])).stdout).toMatch(/^Usage: /)
})

const WORK =
  'x = bytearray(100_000_000)\nfor i in range(0, len(x), 4096): x[i] = 1\ny = sum(range(8_000_000))\n'

test('the profile is of the order that time(1) tells', async () => {
  const file = await script(
    'work.py',
    `def handler(event):\n${WORK.replace(/^(?=.)/gm, '    ')}    return y\n`,
  )
  const { stdout } = await sandboxRun([file, '--format', 'json'])
  const { cpu_time_ms, memory_peak_mb, duration_ms } = JSON.parse(stdout).metrics
  const { stderr } = await promisify(execFile)('/usr/bin/time', ['-v', '/usr/bin/python3', '-c', WORK])
  const told = (name: string) => Number(new RegExp(`${name}[^:]*: ([\\d.]+)`).exec(stderr)?.[1])
  const cpuMs = 1000 * (told('User time') + told('System time'))
  const peakMb = told('Maximum resident set size') / 1024
  expect(cpu_time_ms).toBeGreaterThan(cpuMs / 10)
  expect(cpu_time_ms).toBeLessThan(cpuMs * 10)
  expect(memory_peak_mb).toBeGreaterThan(peakMb / 2)
  expect(memory_peak_mb).toBeLessThan(peakMb * 2)
  expect(duration_ms).toBeGreaterThan(cpu_time_ms / 4)
})
