import { chmod, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { testDatabases } from '../db/testing/test-databases.ts'
import { checkDataDir } from './data-dir-check.ts'
import { isRoot } from './finding.ts'
import { checkSeccomp, checkSystem } from './isolation-checks.ts'
import { probeCgroupV2 } from './limits-check.ts'
import { checkDatabase, checkModel, checkNode, checkPort, checkProvider } from './server-checks.ts'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ash-doctor-'))
  await chmod(folder, 0o755)
})
afterEach(() => rm(folder, { recursive: true, force: true }))

describe('the data directory', () => {
  const check = (...parts: string[]) => checkDataDir({ dataDir: join(folder, ...parts), provider: 'bwrap' })

  test('that does not exist yet can be made, and is not made by looking', async () => {
    expect(await check('a', 'b')).toMatchObject({
      status: 'ok',
      detail: expect.stringContaining('will be made'),
    })
    expect(await readdir(folder)).toEqual([])
  })

  test('that exists is fine with any mode: the server sets it', async () => {
    await mkdir(join(folder, 'data'), { mode: 0o700 })
    expect(await check('data')).toMatchObject({ status: 'ok', detail: expect.stringContaining('GB free') })
  })

  test('below a file is refused', async () => {
    await writeFile(join(folder, 'file'), '')
    expect(await check('file', 'data')).toMatchObject({
      status: 'fail',
      detail: `${folder}/file is not a folder`,
    })
  })

  test.runIf(isRoot())('below a folder that sandbox users cannot search names the folder', async () => {
    await mkdir(join(folder, 'closed'), { mode: 0o700 })
    const closed = { status: 'fail', fix: expect.stringContaining(`chmod o+x ${folder}/closed`) }
    expect(await check('closed', 'data')).toMatchObject(closed)
    await mkdir(join(folder, 'closed', 'data'))
    expect(await check('closed', 'data')).toMatchObject(closed)
    await symlink(join(folder, 'closed', 'data'), join(folder, 'link'))
    expect(await check('link')).toMatchObject(closed)
  })
})

describe('the port', () => {
  const servers: Server[] = []
  afterEach(() => {
    for (const server of servers.splice(0)) server.close()
  })
  async function listen(body: string): Promise<number> {
    const server = createServer((_request, response) => void response.end(body))
    servers.push(server)
    await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready))
    return (server.address() as AddressInfo).port
  }
  const check = (port: number) => checkPort({ host: '127.0.0.1', port })

  test('is free, or any', async () => {
    const port = await listen('')
    await new Promise((closed) => servers.pop()?.close(closed))
    expect(await check(port)).toMatchObject({ status: 'ok', detail: expect.stringContaining('is free') })
    expect(await check(0)).toMatchObject({ status: 'ok' })
  })

  test('with a running Ash is fine, with anything else it is taken', async () => {
    const ash = await listen('{"status":"ok","isolation":"bwrap","version":"1.2.3"}')
    expect(await check(ash)).toMatchObject({
      status: 'ok',
      detail: expect.stringContaining('running Ash 1.2.3'),
    })
    const other = await listen('<html>')
    expect(await check(other)).toMatchObject({ status: 'fail', fix: expect.stringContaining('ASH_PORT=') })
  })

  test('on an address of another machine cannot be had', async () => {
    const verdict = await checkPort({ host: '192.0.2.1', port: 4100 })
    expect(verdict).toMatchObject({ status: 'fail', fix: expect.stringContaining('ASH_HOST') })
  })
})

test('a database that does not answer is named without its password', async () => {
  const verdict = await checkDatabase({ databaseUrl: 'postgres://ada:hush-hush@127.0.0.1:1/ash' })
  expect(verdict).toMatchObject({
    status: 'fail',
    detail: expect.stringContaining('ash at 127.0.0.1:1 as ada'),
  })
  expect(JSON.stringify(verdict)).not.toContain('hush')
  expect(await checkDatabase({})).toMatchObject({ status: 'ok' })
})

test('a database that answers is fine', async () => {
  const postgres = await testDatabases.find(({ kind }) => kind === 'postgres')?.open()
  const { databaseUrl = '' } = postgres ?? {}
  expect(await checkDatabase({ databaseUrl })).toMatchObject({ status: 'ok', detail: 'Postgres answers' })
  await postgres?.close()
})

test('control groups of version 2 count when their controllers can be given away', async () => {
  for (const file of ['cgroup.procs', 'cgroup.subtree_control']) await writeFile(join(folder, file), '')
  await writeFile(join(folder, 'cgroup.controllers'), 'cpuset cpu io memory pids\n')
  const all = { name: 'cgroup-v2', enforcement: { memoryMb: 'hard', cpus: 'hard', processes: 'hard' } }
  expect(await probeCgroupV2(folder)).toMatchObject(all)
  await writeFile(join(folder, 'cgroup.controllers'), 'cpuset cpu pids\n')
  expect(await probeCgroupV2(folder)).toMatchObject({ name: 'rlimit', enforcement: { memoryMb: 'none' } })
  expect(await probeCgroupV2(join(folder, 'none'))).toMatchObject({ name: 'rlimit' })
  expect((await readdir(folder)).length).toBe(3)
})

test('the model is named by its host alone', async () => {
  const model = { kind: 'anthropic', baseUrl: 'https://me:hush-hush@models.example/v1', headers: {} } as const
  const [bare, keyed] = [
    await checkModel({ model }),
    await checkModel({ model: { ...model, apiKey: 'hush' } }),
  ]
  expect(bare).toMatchObject({
    status: 'ok',
    detail: expect.stringContaining('models.example, without a key'),
  })
  expect(keyed).toMatchObject({ status: 'ok', detail: expect.stringContaining('models.example, with a key') })
  expect(JSON.stringify([bare, keyed])).not.toContain('hush')
  expect(await checkModel({ model: { kind: 'offline' } })).toMatchObject({ status: 'warn' })
})

test('machines that cannot isolate are told so', async () => {
  expect(await checkSystem('darwin')).toMatchObject({ status: 'fail', fix: expect.stringContaining('Linux') })
  expect(await checkSeccomp('ppc64')).toMatchObject({
    status: 'fail',
    fix: expect.stringContaining('x64 or arm64'),
  })
  expect(await checkNode('22.3.0')).toMatchObject({ status: 'fail', fix: 'npm run setup' })
  expect(await checkProvider({ provider: 'process' })).toMatchObject({ status: 'warn' })
})
