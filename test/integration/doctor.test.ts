import { chmod, chown, cp, mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Diagnosis } from '@ash-ai/server'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { freePort, type ProcessResult, ROOT, runProcess, takePort } from './support/run-process.ts'
import { startTestServer } from './support/test-server.ts'

const SCRIPT = join(ROOT, 'scripts/doctor.mjs')
const BIN = join(ROOT, 'packages/cli/bin/ash.mjs')
const SECRETS = {
  ANTHROPIC_API_KEY: 'sk-hush-1',
  ASH_API_KEY: 'hush-2',
  ASH_CREDENTIAL_KEY: 'hush-3-hush-3-hush-3',
  ASH_DATABASE_URL: 'postgres://ada:hush-4@127.0.0.1:1/ash',
  ANTHROPIC_CUSTOM_HEADERS: 'x-key: hush-5',
}
const NOBODY = 65_534

let folder: string
let env: Record<string, string>
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ash-doctor-'))
  await chmod(folder, 0o755)
  env = { HOME: folder, ASH_DATA_DIR: join(folder, 'data'), ASH_PORT: String(await freePort()) }
})
afterEach(() => rm(folder, { recursive: true, force: true }))

const doctor = (args: string[], more: Record<string, string> = {}) =>
  runProcess(process.execPath, [SCRIPT, ...args], { env: { ...env, ...more } })

function parse({ stdout }: ProcessResult) {
  const { findings, summary }: Diagnosis = JSON.parse(stdout)
  const find = (id: string) => findings.find((finding) => finding.id === id)
  return { findings, summary, find }
}

const isRoot = process.getuid?.() === 0

test('this machine can run sandboxes, and looking leaves nothing behind', async () => {
  const result = await doctor(['--json'])
  const { findings, summary, find } = parse(result)
  expect(findings.filter(({ status }) => status === 'fail')).toEqual([])
  expect(result).toMatchObject({ code: 0, stderr: '' })
  expect(summary).toMatchObject({ isolation: 'bwrap', canRunSandboxes: true })
  expect(find('namespaces')).toMatchObject({ status: 'ok' })
  expect(find('user')).toMatchObject({ status: isRoot ? 'ok' : 'warn' })
  expect(find('model')).toMatchObject({ status: 'warn', fix: expect.stringContaining('ANTHROPIC_API_KEY') })
  expect(await readdir(folder)).toEqual([])
})

test('people get a mark for each finding and the remedy below it', async () => {
  const { code, stdout } = await doctor([])
  expect(code).toBe(0)
  expect(stdout).toMatch(/^✓ Bubblewrap: bubblewrap \d/m)
  expect(stdout).toMatch(/^! Model: .+\n {4}fix: export ANTHROPIC_API_KEY=/m)
  expect(stdout).toMatch(/^Isolation: bwrap\. Sandboxes can run/m)
})

test('it needs no settings at all', async () => {
  const { stdout, stderr } = await runProcess(process.execPath, [SCRIPT, '--json'])
  expect([stderr, parse({ code: 0, stdout, stderr }).summary.isolation]).toEqual(['', 'bwrap'])
})

test.runIf(isRoot)('an unprivileged user is told what it does not get', async () => {
  const [checkout, dataDir] = [join(folder, 'checkout'), join(folder, 'data')]
  for (const path of [checkout, dataDir]) await mkdir(path)
  await chown(dataDir, NOBODY, NOBODY)
  const asNobody = ['setpriv', `--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups']
  const command = [join(checkout, 'node_modules/.bin/node'), join(checkout, 'scripts/doctor.mjs'), '--json']
  // The checkout may be below a folder that only its owner can search.
  const script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
  const args = ['--mount', '--', 'sh', '-c', script, 'sh', ROOT, checkout, ...asNobody, ...command]
  const result = await runProcess('unshare', args, { env })
  const { findings, summary, find } = parse(result)
  expect(findings.filter(({ status }) => status === 'fail')).toEqual([])
  expect(result.code).toBe(0)
  expect(summary.isolation).toBe('bwrap')
  expect(find('user')).toMatchObject({ status: 'warn', detail: expect.stringContaining(`uid ${NOBODY}`) })
  expect(find('limits')).toMatchObject({
    status: 'warn',
    detail: expect.stringMatching(/^rlimit.*NOT limited/),
  })
  expect(find('limits')?.fix).toBeTruthy()
})

describe('what keeps sandboxes from running is named, with the remedy, and the exit code is 1', () => {
  test.runIf(isRoot)('a data directory that sandbox users cannot reach', async () => {
    await mkdir(join(folder, 'closed'), { mode: 0o700 })
    const result = await doctor([], { ASH_DATA_DIR: join(folder, 'closed/data') })
    expect(result.code).toBe(1)
    expect(result.stdout).toContain(`✗ Data directory: Sandbox users cannot reach ${folder}/closed`)
    expect(result.stdout).toContain(`    fix: Run "chmod o+x ${folder}/closed"`)
    expect(result.stdout).toMatch(/Sandboxes cannot run: mend what is marked ✗/)
  })

  test('user namespaces that are not allowed, tried where they are off', async () => {
    const off = ['--unshare-user', '--disable-userns', '--uid', '1000', '--bind', '/', '/', '--dev', '/dev']
    const command = [...off, '--proc', '/proc', process.execPath, SCRIPT, '--json']
    const result = await runProcess('/usr/bin/bwrap', command, { env })
    expect(result.code).toBe(1)
    const { find, summary } = parse(result)
    expect(find('namespaces')).toMatchObject({ status: 'fail', detail: expect.stringContaining('bwrap: ') })
    expect(find('namespaces')?.fix).toBeTruthy()
    expect(summary).toMatchObject({ isolation: 'none', canRunSandboxes: false })
  })

  test('a port that something else has', async () => {
    await using taken = await takePort()
    const result = await doctor(['--json'], { ASH_PORT: String(taken.port) })
    expect(result.code).toBe(1)
    expect(parse(result).find('port')).toMatchObject({
      status: 'fail',
      fix: expect.stringContaining('ASH_PORT='),
    })
  })

  test('a bridge that is not there', async () => {
    const result = await doctor(['--json'], { ASH_BRIDGE_ENTRY: join(folder, 'bridge.mjs') })
    expect(result.code).toBe(1)
    expect(parse(result).find('runtime')).toMatchObject({ status: 'fail', fix: 'npm run setup' })
  })

  test('a setting the server refuses; the machine is still looked at', async () => {
    const result = await doctor(['--json'], { ASH_MAX_SANDBOXES: 'hush-many' })
    expect(result.code).toBe(1)
    expect(result.stdout).not.toContain('hush')
    const { find, summary } = parse(result)
    expect(find('settings')).toMatchObject({
      status: 'fail',
      detail: expect.stringContaining('ASH_MAX_SANDBOXES'),
    })
    expect(summary).toMatchObject({ isolation: 'bwrap', canRunSandboxes: false })
  })
})

test('beside a running server its port is in good hands, and it goes on', async () => {
  const server = await startTestServer()
  try {
    const { port } = new URL(server.url)
    const result = await doctor(['--json'], { ASH_DATA_DIR: server.dataDir, ASH_PORT: port })
    expect(result.code).toBe(0)
    const running = { status: 'ok', detail: expect.stringContaining('a running Ash') }
    expect(parse(result).find('port')).toMatchObject(running)
    expect(await server.client.ready()).toMatchObject({ ready: true })
  } finally {
    await server.close()
  }
})

test('a checkout that is not built is a finding too', async () => {
  await cp(join(ROOT, 'scripts'), join(folder, 'scripts'), { recursive: true })
  const script = join(folder, 'scripts/doctor.mjs')
  const result = await runProcess(process.execPath, [script, '--json'])
  expect(result.code).toBe(1)
  expect(parse(result).findings).toMatchObject([{ id: 'build', status: 'fail', fix: 'npm run setup' }])
  const { code, stderr } = await runProcess(process.execPath, [script])
  expect([code, stderr]).toEqual([1, expect.stringContaining('Run: npm run setup')])
})

test('the process provider is allowed and warned about', async () => {
  const result = await doctor(['--json'], { ASH_PROVIDER: 'process' })
  expect(result.code).toBe(0)
  const { summary, find } = parse(result)
  expect(summary).toMatchObject({ isolation: 'none', limits: { backend: 'none' }, canRunSandboxes: true })
  expect(find('provider')).toMatchObject({ status: 'warn', fix: expect.stringContaining('ASH_PROVIDER') })
})

test('no secret is printed, whatever is found', async () => {
  for (const args of [[], ['--json']]) {
    const { code, stdout, stderr } = await doctor(args, SECRETS)
    expect(code).toBe(1) // Nobody listens at that database.
    expect(stdout).toContain('as ada')
    expect(stdout + stderr).not.toContain('hush')
  }
})

describe('ash doctor', () => {
  const ash = (args: string[], more: Record<string, string> = {}) =>
    runProcess(process.execPath, [BIN, 'doctor', ...args], { env: { ...env, ...more } })

  test('prints what the script found, with its exit code', async () => {
    const found = await ash([])
    expect(found).toMatchObject({ code: 0, stderr: '' })
    const withoutSpace = (text: string) => text.replace(/[\d.]+ GB free/, '')
    expect(withoutSpace(found.stdout)).toBe(withoutSpace((await doctor([])).stdout))
    const failed = await ash([], { ASH_DATABASE_URL: SECRETS.ASH_DATABASE_URL })
    expect(failed).toMatchObject({ code: 1, stderr: '' })
    expect(failed.stdout).toContain('✗ Database: ')
  })

  test('--json is one document', async () => {
    const result = await ash(['--json'])
    expect(result.stdout.trimEnd().split('\n')).toHaveLength(1)
    expect(parse(result).summary).toMatchObject({ isolation: 'bwrap', canRunSandboxes: true })
  })
})
