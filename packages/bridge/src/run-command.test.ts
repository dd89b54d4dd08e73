import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { encodeLine, MAX_EXEC_OUTPUT_BYTES, MAX_LINE_BYTES } from '@ash-ai/shared'
import { expect, onTestFinished, test } from 'vitest'
import { runCommand } from './run-command.ts'

const ENV = { PATH: '/usr/local/bin:/usr/bin:/bin' }

function run(command: string, more: Partial<Parameters<typeof runCommand>[0]> = {}) {
  const { signal } = new AbortController()
  return runCommand({ command, timeoutMs: 10_000, cwd: tmpdir(), env: ENV, signal, ...more })
}

async function tempDir(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ash-bridge-'))
  onTestFinished(() => rm(dir, { recursive: true, force: true }))
  return dir
}

/** How many live processes were started under this name. */
async function countProcesses(name: string): Promise<number> {
  const pids = (await readdir('/proc')).filter((entry) => /^\d+$/.test(entry))
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')))
  return lines.filter((line) => line.split('\0')[0] === name).length
}

let names = 0
const uniqueName = () => `ash-run-command-${process.pid}-${names++}`

test('a command gets its folder and environment, and gives back output and exit code', async () => {
  const cwd = await tempDir()
  const result = await run('pwd; echo "$A" >&2; exit 7', { cwd, env: { ...ENV, A: 'grüße' } })
  expect(result).toEqual({
    exitCode: 7,
    signal: null,
    stdout: `${cwd}\n`,
    stderr: 'grüße\n',
    truncated: false,
    timedOut: false,
  })
})

test('a command may open its outputs by name', async () => {
  expect(await run('echo a > /dev/stderr; echo b | tee /dev/stderr')).toMatchObject({
    stdout: 'b\n',
    stderr: 'a\nb\n',
  })
})

test('a command that reads its input finds none', async () => {
  expect(await run('cat; echo end')).toMatchObject({ stdout: 'end\n', exitCode: 0 })
})

test.each([
  ['a command that is not there', 'exec /nonexistent/program', 127],
  ['a syntax error', 'if then', 2],
  ['success', 'true', 0],
])('%s has its exit code', async (_, command, exitCode) => {
  expect(await run(command)).toMatchObject({ exitCode, signal: null, timedOut: false })
})

test('a command that kills itself says by which signal', async () => {
  expect(await run('kill -TERM $$')).toMatchObject({ exitCode: null, signal: 'SIGTERM', timedOut: false })
})

test('a folder that is gone is an error, not a hang', async () => {
  await expect(run('true', { cwd: '/nonexistent' })).rejects.toThrow(/ENOENT/)
})

test('a command that takes too long is killed with all it started', async () => {
  const name = uniqueName()
  const command = `trap '' TERM
    bash -c 'exec -a ${name} sleep 1000 & exec -a ${name} sleep 1000' &
    (exec -a ${name} sleep 1000) & echo started; wait`
  const result = await run(command, { timeoutMs: 500 })
  expect(result).toMatchObject({ exitCode: null, signal: 'SIGKILL', stdout: 'started\n', timedOut: true })
  await expect.poll(() => countProcesses(name)).toBe(0)
})

test('an aborted command is killed with all it started', async () => {
  const name = uniqueName()
  const abort = new AbortController()
  const running = run(`(exec -a ${name} sleep 1000) & wait`, { signal: abort.signal })
  await expect.poll(() => countProcesses(name)).toBe(1)
  abort.abort()
  expect(await running).toMatchObject({ signal: 'SIGKILL', timedOut: false })
  await expect.poll(() => countProcesses(name)).toBe(0)
})

test('what is left in the background does not hold the command up, and is killed', async () => {
  const name = uniqueName()
  const result = await run(`(exec -a ${name} sleep 1000) & echo done`)
  expect(result).toMatchObject({ exitCode: 0, stdout: 'done\n', timedOut: false })
  await expect.poll(() => countProcesses(name)).toBe(0)
})

test('a background process that left the group does not hold the command up either', async () => {
  const pidFile = join(await tempDir(), 'pid')
  const result = await run(
    `setsid bash -c 'echo $$ > ${pidFile}; exec sleep 1000' & while [ ! -s ${pidFile} ]; do :; done; echo done`,
  )
  onTestFinished(async () => {
    process.kill(Number(await readFile(pidFile, 'utf8')), 'SIGKILL')
  })
  expect(result).toMatchObject({ exitCode: 0, stdout: 'done\n' })
})

test('output beyond the limit is cut and says so', async () => {
  const result = await run(`head -c ${MAX_EXEC_OUTPUT_BYTES + 1} /dev/zero | tr '\\0' a`)
  expect(result.stdout.length).toBe(MAX_EXEC_OUTPUT_BYTES)
  expect(result).toMatchObject({ exitCode: 0, truncated: true })
})

test('output of exactly the limit is whole', async () => {
  const result = await run(`head -c ${MAX_EXEC_OUTPUT_BYTES} /dev/zero | tr '\\0' a >&2`)
  expect(result.stderr.length).toBe(MAX_EXEC_OUTPUT_BYTES)
  expect(result.truncated).toBe(false)
})

test('bytes that are no text become replacement characters', async () => {
  expect((await run("printf 'a\\377\\376b\\0c'")).stdout).toBe('a\uFFFD\uFFFDb\0c')
})

test.each([
  ['zeros', 'cat /dev/zero'],
  ['broken text', "cat /dev/zero | tr '\\0' '\\377'"],
])('the answer fits in a line even if both outputs are full of %s', async (_, source) => {
  const bytes = MAX_EXEC_OUTPUT_BYTES
  const result = await run(`${source} | head -c ${bytes}; ${source} | head -c ${bytes} >&2`)
  expect(Buffer.byteLength(encodeLine({ ev: 'result', id: '1', data: result }))).toBeLessThan(MAX_LINE_BYTES)
  expect(result.truncated).toBe(true)
  expect(result.stdout.length).toBeGreaterThan(1024 * 1024)
})
