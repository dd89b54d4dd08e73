import { PostgresServer } from '@ash-ai/server/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type PackageIndex, startPackageIndex } from './support/package-index.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

describe('with packages and a network', () => {
  let server: TestServer
  let index: PackageIndex
  beforeAll(async () => {
    index = await startPackageIndex()
    server = await startTestServer({
      env: { ASH_PIP_INDEX_URL: index.pipUrl, ASH_NPM_REGISTRY: index.npmUrl },
    })
    await server.client.templates.create({
      name: 'packed',
      languages: ['python', 'shell'],
      packages: { pip: ['ash-demo'] },
      network: [index.host],
    })
  })
  afterAll(async () => {
    await server.close()
    await index.close()
  })

  const code = 'import ash_demo\nprint(ash_demo.__name__)'

  test('packages of the template are there for a single run, also without a network', async () => {
    const run = { template: 'packed', network: 'none' as const, code }
    for (let times = 0; times < 2; times++)
      expect(await server.client.execute(run)).toMatchObject({ status: 'completed', stdout: 'ash_demo\n' })
  })

  test('packages of the template are there for kernels, scripts and handlers of a session', async () => {
    const { id } = await server.client.sessions.create({ template: 'packed' })
    const handler = 'import ash_demo\ndef handler(event): return ash_demo.__name__'
    for (const request of [{ code }, { code, fresh: true }])
      expect(await server.client.sessions.execute(id, request)).toMatchObject({ stdout: 'ash_demo\n' })
    expect(await server.client.sessions.execute(id, { handler })).toMatchObject({ result: 'ash_demo' })
  })

  test('a single run with a network can use it, and one without cannot', async () => {
    // The index is on this machine, which the proxy is not asked for otherwise.
    const proxied = 'import os\nfor name in ("no_proxy", "NO_PROXY"): os.environ.pop(name, None)'
    const ask = `${proxied}\nimport urllib.request\nprint(urllib.request.urlopen("http://${index.host}/simple/").status)`
    expect(await server.client.execute({ code: ask, network: [index.host] })).toMatchObject({
      status: 'failed',
      error: { name: 'HTTPError' },
    })
    expect(await server.client.execute({ code: ask })).toMatchObject({
      status: 'failed',
      error: { name: 'URLError' },
    })
  })

  test('packages that cannot be had fail the run, not the server', async () => {
    const execution = await server.client.execute({
      code,
      packages: { pip: ['no-such-package'] },
      network: [index.host],
    })
    expect(execution).toMatchObject({ status: 'crashed', error: { name: 'setup_failed' } })
  })

  test('variables of template and session are there, those of the run over them', async () => {
    await server.client.templates.create({
      name: 'named',
      languages: ['python'],
      env: { A: 'template', B: 'template', C: 'template' },
    })
    const read = 'import os\n[os.environ[name] for name in "ABC"]'
    const expected = { result: ['template', 'session', 'run'] }
    const made = { template: 'named', env: { B: 'session', C: 'session' } }
    const { id } = await server.client.sessions.create(made)
    const run = { code: read, env: { C: 'run' } }
    expect(await server.client.sessions.execute(id, run)).toMatchObject(expected)
    const single = await server.client.sessions.create({ ...made, mode: 'ephemeral' })
    expect(await server.client.sessions.execute(single.id, run)).toMatchObject(expected)
  })
})

test('a log that is full cuts output off and then refuses runs; the states are still told', async () => {
  const server = await startTestServer({ env: { ASH_SESSION_LOG_MB: '1' } })
  try {
    const { id } = await server.client.sessions.create({ template: 'python' })
    const run = (code: string) => server.client.sessions.execute(id, { code })
    const flood = await run('for _ in range(40): print("x" * 65536)\n"end"')
    expect(flood).toMatchObject({ status: 'completed', result: 'end', truncated: true })
    expect(flood.stdout.length).toBeLessThanOrEqual(1024 * 1024)
    expect(await server.client.executions.get(id, flood.id)).toEqual(flood)
    await run('print("y" * 60000)').catch(() => {})
    const last = await run('1').catch((error: unknown) => error)
    expect(last).toMatchObject(
      last instanceof Error ? { code: 'log_full' } : { status: 'completed', result: 1 },
    )
  } finally {
    await server.close()
  }
})

test('all of it works on PostgreSQL', async () => {
  const postgres = await PostgresServer.start()
  const { url, drop } = await postgres.createDatabase('executions')
  const server = await startTestServer({ env: { ASH_DATABASE_URL: url } })
  try {
    const { client } = server
    const idempotencyKey = crypto.randomUUID()
    const once = () => client.execute({ code: 'import random\nrandom.random()' }, { idempotencyKey })
    const twins = await Promise.all([once(), once(), once()])
    expect(new Set(twins.map(({ id, result }) => `${id} ${result}`)).size).toBe(1)
    const { id } = await client.sessions.create({ template: 'python' })
    const handler = 'def handler(event): return event'
    const event = { text: '\0 and ü', none: null }
    expect(await client.sessions.execute(id, { handler, event })).toMatchObject({ result: event })
    const code = 'print("a\\0b")\nopen("f.txt", "w").write("1")\nx = 1'
    const first = await client.sessions.execute(id, { code })
    expect(first).toMatchObject({ stdout: 'a\0b\n', artifacts: [{ path: 'f.txt' }] })
    const running = await client.sessions.execute(id, { code: 'import time\ntime.sleep(600)', async: true })
    const waiting = await client.sessions.execute(id, { code: 'x', async: true })
    expect(await client.executions.cancel(id, running.id)).toMatchObject({ status: 'cancelled' })
    expect(await client.executions.wait(id, waiting.id)).toMatchObject({ result: 1 })
    expect((await client.executions.list(id)).executions).toHaveLength(4)
    const failed = await client.sessions.execute(id, { code: 'raise ValueError("a\\0b")' })
    expect(failed).toMatchObject({ status: 'failed', error: { message: 'a\0b' } })
  } finally {
    await server.close()
    await drop()
  }
})

test('a session keeps so much of what its runs leave; the rest is listed, and not kept', async () => {
  const server = await startTestServer({ env: { ASH_ARTIFACTS_MB: '1' } })
  try {
    const { id } = await server.client.sessions.create({ template: 'python' })
    const write = (name: string, bytes: number) =>
      server.client.sessions.execute(id, { code: `open("${name}", "wb").write(b"x" * ${bytes})` })
    const kept = async (name: string, bytes: number) =>
      (await write(name, bytes)).artifacts.map(({ path, size, isKept }) => [path, size, isKept])
    expect(await kept('first', 700_000)).toEqual([['first', 700_000, true]])
    expect(await kept('second', 700_000)).toEqual([['second', 700_000, false]])
    expect(await kept('small', 100_000)).toEqual([['small', 100_000, true]])
    await server.kill()
    await server.start()
    expect(await kept('third', 700_000)).toEqual([['third', 700_000, false]])
    const other = await server.client.execute({ code: 'open("mine", "wb").write(b"x" * 700_000)' })
    expect(other.artifacts).toMatchObject([{ path: 'mine', isKept: true }])
  } finally {
    await server.close()
  }
})

test('many single runs at once all come to their end', async () => {
  const server = await startTestServer({ env: { ASH_MAX_SANDBOXES: '60' } })
  try {
    const runs = Array.from({ length: 50 }, (_, number) =>
      server.client.execute({ language: 'shell', code: `echo ${number}` }),
    )
    const outcomes = await Promise.all(runs)
    expect(outcomes.map(({ stdout, attempt }) => [stdout, attempt])).toEqual(
      runs.map((_, number) => [`${number}\n`, 1]),
    )
  } finally {
    await server.close()
  }
})
