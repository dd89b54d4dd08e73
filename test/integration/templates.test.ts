import type { SessionCreate } from '@ash-ai/sdk'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { base64, deployTestAgent } from './support/conversation.ts'
import { type PackageIndex, startPackageIndex } from './support/package-index.ts'
import {
  addTenant,
  countCreates,
  endSessions,
  metric,
  readySpares,
  sandboxFolders,
} from './support/pool-view.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let index: PackageIndex
beforeAll(async () => {
  index = await startPackageIndex()
  server = await startTestServer({
    env: { ASH_PIP_INDEX_URL: index.pipUrl, ASH_NPM_REGISTRY: index.npmUrl },
  })
})
afterAll(async () => {
  await server.close()
  await index.close()
})
afterEach(() => endSessions(server))

const create = (request: SessionCreate) => server.client.sessions.create(request)
const run = async (id: string, command: string) => {
  const { stdout, stderr } = await server.client.sessions.exec(id, { command, timeout: 60_000 })
  return stdout + stderr
}
const get = (id: string) => server.client.sessions.get(id)
const becomesCold = (id: string) =>
  eventually(
    () => get(id),
    ({ sandboxState }) => sandboxState === 'cold',
  )
const logOf = async (id: string) =>
  (await server.client.sessions.events(id, { types: ['log'] })).events.map(
    ({ data }) => (data as unknown as { text: string }).text,
  )
const call = (method: string, path: string, body?: object) =>
  fetch(`${server.url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${server.apiKey}`,
      ...(body && { 'content-type': 'application/json' }),
    },
    ...(body && { body: JSON.stringify(body) }),
  })

describe('templates', () => {
  test('are made, listed among those built in, replaced whole and deleted', async () => {
    const { templates } = server.client
    const made = await templates.create({ name: 'data', runtime: 'python3', env: { TOKEN: 'secret' } })
    expect(made).toMatchObject({ languages: ['python', 'shell'], env: { TOKEN: '***' }, isBuiltIn: false })
    await expect(templates.create({ name: 'data' })).rejects.toMatchObject({ code: 'template_conflict' })
    const names = async () => (await templates.list()).templates.map(({ name }) => name)
    expect(await names()).toEqual(['data', 'node', 'python', 'shell'])
    expect((await call('PUT', '/api/templates/data', { timeout: 5_000 })).status).toBe(200)
    expect(await templates.get('data')).toMatchObject({ timeout: 5_000, env: {}, languages: ['shell'] })
    expect((await call('PUT', '/api/templates/other', {})).status).toBe(201)
    for (const name of ['data', 'other']) await templates.delete(name)
    await expect(templates.get('data')).rejects.toMatchObject({ code: 'template_not_found' })
    await expect(templates.delete('python')).rejects.toMatchObject({ code: 'template_conflict' })
    const stranger = addTenant(server, 'acme')
    await templates.create({ name: 'ours' })
    await expect(stranger.templates.get('ours')).rejects.toMatchObject({ code: 'template_not_found' })
    await expect(stranger.sessions.create({ template: 'ours' })).rejects.toMatchObject({
      code: 'template_not_found',
    })
    await templates.delete('ours')
  })

  test('say what they cannot be', async () => {
    const refused = async (settings: object) => {
      const reply = await call('PUT', '/api/templates/wrong', settings)
      return [reply.status, ((await reply.json()) as { error: string }).error]
    }
    expect(await refused({ runtime: 'python9' })).toEqual([
      400,
      'runtime: is not on this host, looked for /usr/bin/python9 and /usr/local/bin/python9',
    ])
    expect(await refused({ limits: { memoryMb: 1e9 } })).toEqual([400, expect.stringContaining('memoryMb')])
    expect(await refused({ network: ['http://x/'] })).toEqual([400, expect.stringContaining('http://x/')])
    expect(await refused({ languages: ['cobol'] })).toEqual([400, expect.stringContaining('languages')])
    await expect(deployOver('lost', 'nothing')).rejects.toMatchObject({
      code: 'validation_failed',
      message: expect.stringContaining('config.template'),
    })
  })

  test('are not deleted while a session or an agent uses them', async () => {
    const { templates, agents } = server.client
    await templates.create({ name: 'used', network: 'none' })
    const { id } = await create({ template: 'used' })
    await server.client.sessions.stop(id)
    await expect(templates.delete('used')).rejects.toMatchObject({
      code: 'template_in_use',
      message: expect.stringContaining(id),
    })
    await server.client.sessions.end(id)
    await deployOver('over', 'used')
    await expect(templates.delete('used')).rejects.toMatchObject({
      code: 'template_in_use',
      message: expect.stringContaining('"over"'),
    })
    await agents.delete('over')
    await templates.delete('used')
  })
})

const deployOver = (name: string, template: string, env: Record<string, string> = {}, config: object = {}) =>
  server.client.agents.deploy({
    name,
    files: [{ path: 'CLAUDE.md', content: base64('You are a test.') }],
    env,
    config: { template, ...config },
  })

describe('a session of a template', () => {
  test('begins with what the template gives, below its own, and keeps it', async () => {
    const { templates } = server.client
    const settings = {
      languages: ['shell' as const],
      env: { A: 'template', B: 'template' },
      limits: { memoryMb: 300, processes: 100 },
      network: ['one.example'],
      timeout: 7_000,
      idleTimeout: 60_000,
      lifetime: 120_000,
      checkpoints: { keep: 3 },
    }
    await templates.create({ name: 'pinned', ...settings })
    const before = await create({ template: 'pinned', env: { B: 'session' }, limits: { memoryMb: 400 } })
    expect(before).toMatchObject({
      template: 'pinned',
      mode: 'persistent',
      status: 'active',
      languages: ['shell'],
      limits: { memoryMb: 400, processes: 100 },
      network: ['one.example'],
      env: { A: '***', B: '***' },
      timeout: 7_000,
      idleTimeout: 60_000,
      lifetime: 120_000,
      checkpoints: { keep: 3 },
    })
    expect(before.agentName).toBeUndefined()
    const seen = 'echo $A $B; ls -A; ls -d /agent 2>/dev/null'
    expect(await run(before.id, seen)).toBe('template session\n')
    await templates.put({ name: 'pinned', env: { A: 'changed' } })
    await server.client.sessions.stop(before.id)
    expect(await run(before.id, seen)).toBe('template session\n')
    const { lastActiveAt: _, sandboxId: _other, checkpointId: _files, ...kept } = await get(before.id)
    expect(before).toMatchObject(kept)
    const after = await create({ environment: 'pinned', resources: { memoryMb: 256 } })
    expect(after).toMatchObject({ network: 'none', limits: { memoryMb: 256 }, timeout: 300_000 })
    expect(await run(after.id, seen)).toBe('changed\n')
    const { sessions } = await server.client.sessions.list({ template: 'pinned' })
    expect(sessions.map(({ id }) => id)).toEqual([after.id, before.id])
  })

  test('is paused, resumed, forked and rolled back as any other', async () => {
    const { client } = server
    const { id } = await create({ template: 'python', agentId: 'ada' })
    await run(id, 'echo one > file')
    await client.sessions.pause(id)
    expect(await client.sessions.resume(id)).toMatchObject({ status: 'active', resumed: 'warm' })
    const fork = await client.sessions.fork(id)
    expect(fork).toMatchObject({ status: 'paused', template: 'python', languages: ['python', 'shell'] })
    expect(fork.agentId).toBeUndefined()
    expect(await run(fork.id, 'cat file; echo two > file')).toBe('one\n')
    const [first] = (await client.checkpoints.list(id)).checkpoints
    await client.files.write(id, 'file', 'three')
    await client.sessions.rollback(id, { checkpointId: first?.id ?? '' })
    expect(await run(id, 'cat file')).toBe('one\n')
  })

  test('has nobody to talk to', async () => {
    const { id } = await create({ template: 'shell' })
    const path = `/api/sessions/${id}`
    const requests: [string, object][] = [
      ['/messages', { content: 'hello' }],
      ['/interrupt', {}],
      ['/permissions/7b0e6f5e-3a1e-4c0e-9d39-5b8b1d3f7a11', { behavior: 'deny' }],
    ]
    for (const [end, body] of requests) {
      const reply = await call('POST', path + end, body)
      expect([end, reply.status, await reply.json()]).toMatchObject([end, 409, { code: 'no_agent' }])
    }
    await server.client.sessions.stop(id)
    expect((await call('POST', `${path}/messages`, { content: 'hello' })).status).toBe(409)
    expect(await get(id)).toMatchObject({ sandboxState: 'cold' })
  })

  test('is refused under another provider, and told that its image is not used', async () => {
    await expect(create({ template: 'python', provider: 'docker' })).rejects.toMatchObject({
      code: 'provider_unavailable',
      message: expect.stringContaining('bwrap'),
    })
    await server.client.templates.create({ name: 'pictured', image: 'python:3.12' })
    const { id, provider } = await create({ template: 'pictured', provider: 'bwrap' })
    expect(provider).toBe('bwrap')
    expect(await logOf(id)).toEqual(['The image of template pictured is not used: bwrap runs no containers'])
  })

  test('is the one that is open already for whom it is for', async () => {
    const asked = { template: 'shell', agentId: 'ada' }
    const made = await Promise.all(
      Array.from({ length: 10 }, async () => {
        const reply = await call('POST', '/api/sessions', asked)
        return { status: reply.status, ...((await reply.json()) as { session: { id: string } }) }
      }),
    )
    const [id = ''] = [...new Set(made.map(({ session }) => session.id))]
    expect(new Set(made.map(({ session }) => session.id)).size).toBe(1)
    expect(made.filter(({ status }) => status === 201)).toHaveLength(1)
    expect(made.filter(({ status }) => status === 200)).toHaveLength(9)
    await run(id, 'echo mine > file')
    await server.client.sessions.stop(id)
    expect(await create(asked)).toMatchObject({ id, agentId: 'ada', sandboxState: 'cold' })
    expect(await run(id, 'cat file')).toBe('mine\n')
    expect((await create({ ...asked, agentId: 'bob' })).id).not.toBe(id)
    expect((await create({ ...asked, template: 'node' })).id).not.toBe(id)
    expect(await metric(server, 'ash_schedule_total{path="reuse"}')).toBeGreaterThan(0)
    await server.client.sessions.end(id)
    expect((await create(asked)).id).not.toBe(id)
    await expect(create({ ...asked, mode: 'ephemeral' })).rejects.toMatchObject({ code: 'validation_failed' })
  })
})

describe('an agent over a template', () => {
  test('has what both give, its own first', async () => {
    await server.client.templates.create({
      name: 'ground',
      env: { A: 'template', B: 'template', C: 'template' },
      limits: { memoryMb: 600, processes: 100 },
      network: ['one.example'],
    })
    await deployOver('grounded', 'ground', { B: 'agent', C: 'agent' }, { limits: { memoryMb: 700 } })
    const { id, ...session } = await create({ agent: 'grounded', env: { C: 'session' } })
    expect(session).toMatchObject({
      agentName: 'grounded',
      template: 'ground',
      languages: ['shell'],
      limits: { memoryMb: 700, processes: 100 },
      network: ['one.example'],
    })
    expect(await run(id, 'echo $A $B $C; ls')).toBe('template agent session\nCLAUDE.md\n')
    await server.client.templates.put({ name: 'ground' })
    await server.client.sessions.stop(id)
    expect(await run(id, 'echo $A $B $C')).toBe('template agent session\n')
    const other = await create({ agent: 'grounded', template: 'python', network: 'none' })
    expect(other).toMatchObject({ template: 'python', languages: ['python', 'shell'], network: 'none' })
    expect(await run(other.id, 'echo $A $B')).toBe('agent\n')
  })
})

describe('packages', () => {
  const INSTALLED = '~/.venv/bin/python -c "import ash_demo"; ash-demo; stat -c %U ~/.venv'
  const asked = () => index.asked.length

  test('of a template are installed once, for all its sessions, also those without a network', async () => {
    await server.client.templates.create({
      name: 'packed',
      packages: { pip: ['ash-demo'] },
      network: [index.host],
    })
    const first = await create({ template: 'packed', network: 'none' })
    expect(await run(first.id, INSTALLED)).not.toMatch(/rror|not found/)
    expect((await logOf(first.id)).at(-1)).toMatch(/^Built layer p-\w+ of packages$/)
    expect((await logOf(first.id)).join()).not.toContain('agent')
    const before = asked()
    const second = await create({ template: 'packed' })
    expect(await logOf(second.id)).toEqual([expect.stringMatching(/^Reused layer p-\w+ of packages$/)])
    expect(await run(second.id, INSTALLED)).toBe(await run(first.id, INSTALLED))
    expect(asked()).toBe(before)
  })

  test('of a session come by its own network, beside those of the template', async () => {
    await server.client.templates.put({
      name: 'packed',
      packages: { pip: ['ash-demo'] },
      network: [index.host],
    })
    const packages = { npm: ['ash-demo'] }
    await expect(create({ template: 'shell', packages })).rejects.toMatchObject({
      code: 'setup_failed',
      message: `The network policy keeps packages.npm out of reach. Allow it: network: ["${index.host}"]`,
    })
    const { id } = await create({ template: 'packed', packages })
    expect(await run(id, 'test -d ~/.venv && command -v ash-demo')).toContain('ash-demo')
    expect(await run(id, INSTALLED)).not.toMatch(/rror|not found/)
    await expect(
      create({ template: 'shell', packages: { npm: ['no-such-thing'] }, network: [index.host] }),
    ).rejects.toMatchObject({ code: 'setup_failed', message: expect.stringMatching(/^npm ended with 1/) })
  })

  test('of a template are there for an agent, too', async () => {
    await server.client.templates.put({
      name: 'packed',
      packages: { pip: ['ash-demo'] },
      network: [index.host],
    })
    await deployOver('packer', 'packed')
    const { id } = await create({ agent: 'packer' })
    expect(await run(id, `${INSTALLED}; ls`)).toMatch(/CLAUDE\.md\n$/)
    expect((await logOf(id)).at(-1)).toMatch(/^Built layer v1-\w+\+\w+ of agent packer, version 1$/)
  })
})

describe('a session for one execution', () => {
  const make = () => create({ template: 'python', mode: 'ephemeral' })

  test('has neither sandbox nor folders until it is used', async () => {
    const session = await make()
    expect(session).toMatchObject({ mode: 'ephemeral', status: 'active', sandboxState: 'cold' })
    expect(await sandboxFolders(server)).not.toContain(session.id)
    const { client } = server
    expect((await client.files.list(session.id)).files).toEqual([])
    await expect(client.files.readText(session.id, 'x')).rejects.toMatchObject({ code: 'file_not_found' })
    for (const call of [
      () => run(session.id, 'true'),
      () => client.sessions.pause(session.id),
      () => client.sessions.stop(session.id),
      () => client.sessions.resume(session.id),
      () => client.sessions.fork(session.id),
    ])
      await expect(call()).rejects.toMatchObject({ code: 'forbidden' })
    await client.files.write(session.id, 'data.csv', '1,2')
    expect(await client.files.readText(session.id, 'data.csv')).toBe('1,2')
    expect(await client.sessions.end(session.id)).toMatchObject({ status: 'ended' })
    expect(await sandboxFolders(server)).not.toContain(session.id)
  })

  test('has its packages beside files that were there first', async () => {
    await server.client.templates.put({
      name: 'packed',
      packages: { npm: ['ash-demo'] },
      network: [index.host],
    })
    const { id } = await create({ template: 'packed', mode: 'ephemeral', network: 'none' })
    await server.client.files.write(id, 'data.csv', '1,2')
    expect((await logOf(id)).at(-1)).toMatch(/layer p-\w+ of packages$/)
    expect(await server.client.files.readText(id, 'data.csv')).toBe('1,2')
  })

  test('is still there, with its files, after a restart', async () => {
    const [empty, full] = [await make(), await make()]
    await server.client.files.write(full.id, 'data.csv', '1,2')
    await server.kill()
    await server.start()
    for (const { id } of [empty, full]) expect((await get(id)).status).toBe('paused')
    expect(await server.client.files.readText(full.id, 'data.csv')).toBe('1,2')
    await server.client.files.write(empty.id, 'late', 'x')
    expect(await server.client.files.readText(empty.id, 'late')).toBe('x')
  })
})

describe('spares of a template', () => {
  test('become its sessions, and as many as it says are kept, also after a restart', async () => {
    const { templates } = server.client
    await templates.create({ name: 'ready', env: { A: 'b' }, warm: { persistent: { min: 1, target: 2 } } })
    await readySpares(server, 1)
    const counts = await countCreates(server, async () => {
      const { id } = await create({ template: 'ready', network: ['one.example'] })
      expect(await run(id, 'echo $A; ls -A')).toBe('b\n')
      await readySpares(server, 2)
      await create({ template: 'ready', limits: { memoryMb: 300 } })
    })
    expect(counts).toEqual({ warm: 1, cold: 1 })
    await endSessions(server)
    await server.stop()
    await server.start()
    await readySpares(server, 1)
    await server.client.templates.put({ name: 'ready' })
    await readySpares(server, 0)
    await server.client.templates.delete('ready')
  })
})

describe('idle time and lifetime', () => {
  test('leave a session its files and no process, each its own', async () => {
    const idle = await create({ template: 'shell', idleTimeout: 1_000 })
    const old = await create({ template: 'shell', lifetime: 1_500 })
    const other = await create({ template: 'shell' })
    expect(other).toMatchObject({ idleTimeout: 1_800_000, lifetime: 21_600_000 })
    await run(idle.id, 'echo kept > file')
    await run(old.id, 'echo kept > file')
    const lifetimes = await metric(server, 'ash_evictions_total{reason="lifetime"}')
    // Work goes on beyond the lifetime.
    expect(await run(old.id, 'sleep 2.5; echo done')).toBe('done\n')
    for (const { id } of [idle, old]) {
      expect(await becomesCold(id)).toMatchObject({ status: 'paused' })
      expect(await run(id, 'cat file')).toBe('kept\n')
    }
    expect(await metric(server, 'ash_evictions_total{reason="lifetime"}')).toBeGreaterThan(lifetimes)
    expect(await get(other.id)).toMatchObject({ status: 'active', sandboxState: 'waiting' })
  })

  test('end a session for one execution that was never used', async () => {
    const { id } = await create({ template: 'shell', mode: 'ephemeral', idleTimeout: 1_000 })
    await eventually(
      () => get(id),
      ({ status }) => status === 'ended',
      20_000,
    )
    expect(await sandboxFolders(server)).not.toContain(id)
  })

  test('of an agent are as the server says, unless it says otherwise', async () => {
    await deployTestAgent(server.client)
    const plain = await create({ agent: 'zebra' })
    expect(plain).toMatchObject({ idleTimeout: 600_000, languages: ['python', 'javascript', 'shell'] })
    expect(plain.lifetime).toBeUndefined()
    const { id } = await create({ agent: 'zebra', idleTimeout: 1_000 })
    expect(await becomesCold(id)).toMatchObject({ status: 'paused', idleTimeout: 1_000 })
  })
})
