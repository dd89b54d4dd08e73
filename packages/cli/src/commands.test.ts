import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Command } from 'commander'
import { afterEach, describe, expect, test } from 'vitest'
import { createProgram } from './main.ts'
import {
  type Api,
  BIN,
  errorBody,
  runCli,
  runProcess,
  SESSION,
  sendJson,
  startApi,
} from './testing/run-cli.ts'

const closers: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

async function api(routes: Parameters<typeof startApi>[0]): Promise<Api> {
  const server = await startApi(routes)
  closers.push(() => server.close())
  return server
}

function tempDir(): string {
  const dir = mkdtempSync(join(tmpdir(), 'ash-cli-'))
  closers.push(() => rmSync(dir, { recursive: true }))
  return dir
}

const HEALTH = {
  status: 'ok',
  version: '0.1.0',
  uptimeSeconds: 5,
  database: 'sqlite',
  provider: 'bwrap',
  isolation: 'bwrap',
  model: 'offline',
  sandboxes: { live: 1, max: 8 },
}

describe('every command', () => {
  const program = createProgram(() => async () => {})
  const leaves = (command: Command): Command[] => [command, ...command.commands.flatMap(leaves)]

  test('has help with an example', () => {
    expect(leaves(program).length).toBeGreaterThan(20)
    for (const command of leaves(program)) {
      const parts: string[] = []
      command.configureOutput({ writeOut: (text) => void parts.push(text) }).outputHelp()
      const help = parts.join('')
      expect(help, command.name()).toMatch(/Examples:\n {2}\$ /)
      expect(help).toContain('--json')
    }
  })

  test('ends with the code that help documents', async () => {
    const { stdout, code } = await runCli(['--help'])
    expect(code).toBe(0)
    expect(stdout).toMatch(/Exit codes:.*2 +wrong usage.*130 +interrupted/s)
  })
})

describe('exit codes', () => {
  test.each([
    ['unauthorized', 401, 4, 'ASH_API_KEY'],
    ['agent_not_found', 404, 5, 'ash agent list'],
    ['internal_error', 500, 1, 'request r1: ash logs'],
  ])('%s is told in two lines', async (code, status, exitCode, next) => {
    const body = errorBody(code, status, 'It\nfailed \x1b[31m')
    const { url } = await api({ 'GET /api/agents/x': (response) => sendJson(response, status, body) })
    const result = await runCli(['agent', 'info', 'x', '--url', url, '--json'])
    expect(result).toMatchObject({ code: exitCode, stdout: '' })
    const lines = result.stderr.trimEnd().split('\n')
    expect(lines).toHaveLength(2)
    expect(lines[0]).toBe('error: It failed \\x1b[31m')
    expect(lines[1]).toContain(next)
  })

  test('a server that is not there is 3', async () => {
    const { url, close } = await startApi({})
    await close()
    const result = await runCli(['agent', 'list'], { env: { ASH_SERVER_URL: url } })
    expect(result).toMatchObject({ code: 3, stdout: '' })
    expect(result.stderr).toMatch(/^error: Cannot reach .*\n {2}next: .*ash start/)
  })

  test.each([
    [['deploy']],
    [['agent', 'nonsense']],
    [['session', 'list', '--status', 'x']],
    [['deploy', '/nonexistent']],
    [['deploy', '.', '--env', '1=2']],
    [['health', '--url', 'nonsense']],
  ])('wrong usage %j is 2 and says what to do', async (args) => {
    const result = await runCli(args)
    expect(result).toMatchObject({ code: 2, stdout: '' })
    expect(result.stderr).toMatch(/^error: .*\n(\(.*\)\n)?\s*next: /)
  })
})

test('status is 0 with a server and 3 without, as JSON and in words', async () => {
  const server = await api({ 'GET /health': (response) => sendJson(response, 200, HEALTH) })
  const env = { ASH_SERVER_URL: server.url }
  const running = await runCli(['status', '--json'], { env })
  expect(running.code).toBe(0)
  expect(JSON.parse(running.stdout)).toMatchObject({
    running: true,
    url: server.url,
    health: HEALTH,
    pid: null,
  })
  await server.close()
  const stopped = await runCli(['status'], { env })
  expect(stopped.code).toBe(3)
  expect(stopped.stdout).toContain('Start one with: ash start')
})

test('deploy sends the folder, its variables and the options over them', async () => {
  const dir = join(tempDir(), 'My Helper')
  mkdirSync(dir)
  writeFileSync(join(dir, 'CLAUDE.md'), 'You help.')
  writeFileSync(join(dir, '.env'), 'A=1\nB=1\nC=1\n')
  writeFileSync(join(dir, 'more.env'), 'B=2\nC=2\n')
  const agent = { name: 'My-Helper', version: 2, env: { A: '***' }, config: {} }
  const { url, requests } = await api({
    'POST /api/agents': (response) => sendJson(response, 201, { agent }),
  })
  const args = ['deploy', dir, '--env-file', join(dir, 'more.env'), '-e', 'C=3', '--env', 'TOKEN', '--json']
  const env = { ASH_SERVER_URL: url, ASH_API_KEY: 'secret', TOKEN: 'from here' }
  const result = await runCli(args, { env })
  expect(result.code).toBe(0)
  expect(JSON.parse(result.stdout)).toMatchObject({ agent, files: 2 })
  expect(requests[0]).toMatchObject({
    key: 'Bearer secret',
    json: { name: 'My-Helper', env: { A: '1', B: '2', C: '3', TOKEN: 'from here' } },
  })
})

test('deploy explains a folder without CLAUDE.md', async () => {
  const result = await runCli(['deploy', tempDir()])
  expect(result).toMatchObject({ code: 1, stdout: '' })
  expect(result.stderr).toMatch(/has no CLAUDE.md.*\n {2}next: Write what the agent is/)
})

test('session create prints the id alone, so that scripts can take it', async () => {
  const { url } = await api({
    'POST /api/sessions': (response) => sendJson(response, 201, { session: SESSION }),
  })
  const result = await runCli(['session', 'create', 'helper', '--url', url])
  expect(result).toMatchObject({ code: 0, stdout: `${SESSION.id}\n` })
})

test('exec passes the output on, and the failure', async () => {
  const reply = {
    exitCode: 3,
    signal: null,
    stdout: 'a\x1bb',
    stderr: 'bad\n',
    truncated: false,
    timedOut: false,
  }
  const path = `/api/sessions/${SESSION.id}/exec`
  const { url, requests } = await api({ [`POST ${path}`]: (response) => sendJson(response, 200, reply) })
  const result = await runCli(['session', 'exec', SESSION.id, 'make', '--timeout', '2', '--url', url])
  expect(result).toMatchObject({ code: 1, stdout: 'a\x1bb', stderr: 'bad\nThe command ended with 3\n' })
  expect(requests[0]?.json).toEqual({ command: 'make', timeout: 2000 })
})

test('session files lists by default, and reads and writes bytes', async () => {
  const files = [{ path: 'a\x1b.txt', type: 'file', size: 3, modifiedAt: 'now' }]
  const base = `/api/sessions/${SESSION.id}/files`
  const { url, requests } = await api({
    [`GET ${base}`]: (response) => sendJson(response, 200, { files, truncated: false }),
    [`GET ${base}/a/b.bin`]: (response) => response.end(Buffer.of(0xff, 0x00)),
    [`PUT ${base}/in.txt`]: (response) => sendJson(response, 200, { path: 'in.txt', size: 5 }),
  })
  const env = { ASH_SERVER_URL: url }
  const list = await runCli(['session', 'files', SESSION.id], { env })
  expect(list.stdout).toBe('PATH       TYPE  BYTES  MODIFIED\na\\x1b.txt  file  3      now\n')
  const target = join(tempDir(), 'out')
  await runCli(['session', 'files', 'read', SESSION.id, 'a/b.bin', '-o', target], { env })
  expect([...readFileSync(target)]).toEqual([0xff, 0x00])
  const write = await runCli(['session', 'files', 'write', SESSION.id, 'in.txt'], { env, input: 'hello' })
  expect(write.code).toBe(0)
  expect(requests.at(-1)?.json).toBe('hello')
})

test('colours are for terminals, and not with NO_COLOR', async () => {
  const { url } = await api({ 'GET /health': (response) => sendJson(response, 200, HEALTH) })
  const inTerminal = (env: Record<string, string>) => {
    const command = `${process.execPath} --conditions=development ${BIN} health --url ${url}`
    return runProcess('script', ['-qec', command, '/dev/null'], { env: { TERM: 'xterm', ...env } })
  }
  expect((await inTerminal({})).stdout).toContain('\x1b[32m●')
  expect((await inTerminal({ NO_COLOR: '1' })).stdout).not.toContain('\x1b')
  expect((await runCli(['health', '--url', url])).stdout).not.toContain('\x1b')
})

test('an older Node runs the command with the Node of the workspace', async (context) => {
  const { stdout: version } = await runProcess('/usr/bin/node', ['--version'], {}).catch(() => ({
    stdout: '',
  }))
  if (!/^v(18|20|22)\./.test(version)) return context.skip()
  const result = await runProcess('/usr/bin/node', [BIN, 'deploy', '/nonexistent'], {})
  expect(result).toMatchObject({ code: 2, stdout: '' })
})
