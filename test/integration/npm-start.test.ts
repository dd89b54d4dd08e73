import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { BARE_ENV, freePort, ROOT, runProcess } from './support/run-process.ts'
import { countSandboxProcesses, eventually, listProcesses, nextUidBase } from './support/sandbox-processes.ts'

const UID_COUNT = 100
const uidBase = nextUidBase(UID_COUNT)
const START_TIMEOUT_MS = 80_000
const STOP_TIMEOUT_MS = 20_000

let env: Record<string, string>
let url: string
let dataDir: string
let child: ChildProcess
let output = ''

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'ash-start-'))
  await chmod(dataDir, 0o755)
  const port = await freePort()
  url = `http://127.0.0.1:${port}`
  env = {
    ...BARE_ENV,
    HOME: process.env.HOME ?? tmpdir(),
    ASH_PORT: String(port),
    ASH_DATA_DIR: dataDir,
    ASH_SANDBOX_UID_BASE: String(uidBase),
    ASH_SANDBOX_UID_COUNT: String(UID_COUNT),
  }
  // A group of its own, as a shell gives it.
  child = spawn('npm', ['start'], { cwd: ROOT, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (text: string) => {
      output += text
    })
  }
  const isUp = () => output.includes('Ctrl-C stops Ash') || child.exitCode !== null
  await eventually(() => output, isUp, START_TIMEOUT_MS)
})
afterAll(async () => {
  // Only after a failure is anything left.
  for (const pid of await findOwnProcesses()) process.kill(pid, 'SIGKILL')
  await rm(dataDir, { recursive: true, force: true })
})

/** What was started with our data directory: npm, the server, which has a group of its own, and their helpers. */
async function findOwnProcesses(): Promise<number[]> {
  const pids = (await listProcesses()).map(({ pid }) => pid)
  const environments = await Promise.all(
    pids.map((pid) => readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '')),
  )
  return pids.filter((_, index) => environments[index]?.split('\0').includes(`ASH_DATA_DIR=${dataDir}`))
}

/** The commands printed under "Try next". */
const printedCommands = () =>
  [...(output.split('Try next')[1] ?? '').matchAll(/^ {2}(\S.*)$/gm)].map((line) => line[1] ?? '')

describe('npm start', () => {
  test('shows its steps, deploys the example and streams an answer that says it is offline', () => {
    for (const step of ['system packages', 'packages', 'build', 'server'])
      expect(output).toMatch(new RegExp(`^✓ ${step}\\b.* [\\d.]+ s$`, 'm'))
    expect(output).toContain('Deployed hosted-agent version 1')
    expect(output).toContain('[offline model] No ANTHROPIC_API_KEY is set')
    expect(output).toContain('hello.md')
  })

  test('prints the address and where the key is, not the key', async () => {
    const key = (await readFile(join(dataDir, 'api-key'), 'utf8')).trim()
    expect(output).toMatch(new RegExp(`^ +API +${url}$`, 'm'))
    expect(output).toContain(join(dataDir, 'api-key'))
    expect(output).not.toContain(key)
  })

  test('prints three commands, and each works as printed', async () => {
    const commands = printedCommands()
    expect(commands).toHaveLength(3)
    const shell = { env: { HOME: env.HOME ?? '' } }
    const results = []
    for (const command of commands) results.push(await runProcess('bash', ['-c', command], shell))
    expect(results.map(({ code, stderr }) => [code, stderr.includes('error')])).toEqual(
      commands.map(() => [0, false]),
    )
    const [chat, list, curl] = results.map(({ stdout }) => stdout)
    expect(chat).toContain('[offline model]')
    expect(list).toMatch(/[0-9a-f-]{36} +hosted-agent v1 +ended/)
    expect(JSON.parse(curl ?? '')).toMatchObject({ agents: [{ name: 'hosted-agent', version: 1 }] })
  })

  test('a second time finds the first running, uses it and leaves', async () => {
    const { code, stdout, stderr } = await runProcess('npm', ['start'], { env })
    expect([code, stderr]).toEqual([0, expect.not.stringContaining('rror')])
    expect(stdout).toContain(`already running at ${url}`)
    expect(stdout).toContain('[offline model]')
    expect(child.exitCode).toBeNull()
    expect((await fetch(`${url}/ready`)).status).toBe(200)
  })

  test('SIGTERM stops it and everything it started, within its time', async () => {
    const cli = ['run', '-s', 'ash', '--', 'session', 'create', 'hosted-agent']
    expect((await runProcess('npm', cli, { env })).code).toBe(0)
    expect(await countSandboxProcesses(uidBase, UID_COUNT)).toBeGreaterThan(0)
    expect((await findOwnProcesses()).length).toBeGreaterThan(1)
    const exited = once(child, 'exit', { signal: AbortSignal.timeout(STOP_TIMEOUT_MS) })
    child.kill('SIGTERM')
    expect(await exited).toEqual([0, null])
    expect(output).toContain('Stopping Ash')
    await eventually(
      () => countSandboxProcesses(uidBase, UID_COUNT),
      (count) => count === 0,
    )
    await expect(fetch(`${url}/health`)).rejects.toThrow()
    await eventually(findOwnProcesses, (pids) => pids.length === 0)
  })
})
