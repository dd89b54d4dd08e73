import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { runCli, runProcess } from './testing/run-cli.ts'

/** Stands in for the server: says what it was given, is ready after a moment, can refuse to start or to stop. */
const SERVER = `
import { createServer } from 'node:http'
console.log(JSON.stringify({ variables: Object.keys(process.env).sort() }))
if (process.env.ASH_TEST === 'fail') { console.log('no bubblewrap\\x1b[31m'); process.exit(7) }
let ready = false
setTimeout(() => { ready = true }, 300)
process.on('SIGTERM', () => process.exit(0))
createServer((request, response) => {
  response.setHeader('content-type', 'application/json')
  if (request.url === '/ready') response.writeHead(ready ? 200 : 503).end(JSON.stringify({ ready, checks: {} }))
  else response.end(JSON.stringify({ status: 'ok', sandboxes: { live: 0, max: 1 } }))
}).listen(Number(process.env.ASH_PORT), '127.0.0.1')
`

const CLI = fileURLToPath(new URL('..', import.meta.url))
const root = mkdtempSync(join(tmpdir(), 'ash-workspace-'))
const bin = join(root, 'packages/cli/bin/ash.mjs')
let dataDir: string
let env: Record<string, string>

/** A workspace with this CLI and that server. */
beforeAll(() => {
  mkdirSync(join(root, 'scripts'))
  writeFileSync(join(root, 'scripts/server.mjs'), SERVER)
  for (const part of ['bin', 'src', 'package.json']) {
    cpSync(join(CLI, part), join(root, 'packages/cli', part), { recursive: true })
  }
  symlinkSync(join(CLI, 'node_modules'), join(root, 'packages/cli/node_modules'))
})
afterAll(() => rmSync(root, { recursive: true }))

beforeEach(async () => {
  dataDir = join(mkdtempSync(join(root, 'data-')), 'ash')
  env = { ASH_DATA_DIR: dataDir, ASH_PORT: String(await freePort()), SECRET: 'not for the server' }
})
afterEach(async () => {
  await runCli(['stop'], { bin, env })
})

test('start, start again, status, logs, stop, stop again', async () => {
  const started = await runCli(['start', '--json'], { bin, env })
  expect(started).toMatchObject({ code: 0 })
  const facts = JSON.parse(started.stdout)
  expect(facts).toMatchObject({ running: true, url: `http://127.0.0.1:${env.ASH_PORT}`, dataDir })
  expect(started.stderr).toContain('Starting the server')
  expect(statSync(facts.logFile).mode & 0o777).toBe(0o600)

  const again = await runCli(['start'], { bin, env })
  expect(again).toMatchObject({ code: 0 })
  expect(again.stdout).toMatch(/Already running.*ash deploy/s)

  const status = await runCli(['status', '--json'], { bin, env })
  expect(JSON.parse(status.stdout)).toMatchObject({ running: true, pid: facts.pid })

  const logs = await runCli(['logs', '--json', '-n', '1'], { bin, env })
  expect(JSON.parse(logs.stdout)).toEqual({ variables: ['ASH_DATA_DIR', 'ASH_PORT', 'PATH'] })

  const stopped = await runCli(['stop', '--json'], { bin, env })
  expect(JSON.parse(stopped.stdout)).toEqual({ stopped: true, pid: facts.pid, isKilled: false })
  expect(existsSync(join(dataDir, 'server.pid'))).toBe(false)
  expect(await runCli(['stop'], { bin, env })).toMatchObject({ code: 0, stdout: 'No server is running\n' })
})

test('a server that does not start is explained by its last lines, not by those of before', async () => {
  mkdirSync(dataDir)
  writeFileSync(join(dataDir, 'server.log'), 'an older run\n')
  const result = await runCli(['start'], { bin, env: { ...env, ASH_TEST: 'fail' } })
  expect(result).toMatchObject({ code: 1, stdout: '' })
  expect(result.stderr).toMatch(
    /no bubblewrap\\x1b\[31m\nerror: The server ended \(7\)\n {2}next: .*server\.log/,
  )
  expect(result.stderr).not.toContain('an older run')
  expect(existsSync(join(dataDir, 'server.pid'))).toBe(false)
})

test('a process id that belongs to another program is left alone', async () => {
  mkdirSync(dataDir)
  writeFileSync(join(dataDir, 'server.pid'), `${process.pid}\n`)
  expect(await runCli(['stop'], { bin, env })).toMatchObject({ code: 0, stdout: 'No server is running\n' })
})

test('logs follows the file until Ctrl-C', async () => {
  mkdirSync(dataDir)
  const log = join(dataDir, 'server.log')
  writeFileSync(log, 'one\ntwo\n')
  const result = await runCli(['logs', '-f', '-n', '1'], {
    bin,
    env,
    onOutput: (stdout, kill) => {
      if (stdout === 'two\n') writeFileSync(log, 'three\x1b\n', { flag: 'a' })
      if (stdout.includes('three')) kill('SIGINT')
    },
  })
  expect(result).toMatchObject({ code: 130, stdout: 'two\nthree\\x1b\n' })
  expect(readFileSync(log, 'utf8')).toContain('three')
})

test('the command runs from its sources where nothing has been built', async () => {
  const result = await runProcess(process.execPath, [bin, 'status', '--json'], { env })
  expect(result).toMatchObject({ code: 3, stderr: '' })
  expect(JSON.parse(result.stdout)).toMatchObject({ running: false })
})

test('an older Node without a workspace is told what to do, in one line', async (context) => {
  const { stdout: version } = await runProcess('/usr/bin/node', ['--version'], {}).catch(() => ({
    stdout: '',
  }))
  if (!/^v(18|20|22)\./.test(version)) return context.skip()
  const result = await runProcess('/usr/bin/node', [bin, 'status'], { env })
  expect(result).toMatchObject({ code: 1, stdout: '' })
  expect(result.stderr).toMatch(/^ash needs Node 24 or newer; this is v\S+: run "npm run setup" in .*\n$/)
})

function freePort(): Promise<number> {
  const server = createServer()
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo
      server.close(() => resolve(port))
    })
  })
}
