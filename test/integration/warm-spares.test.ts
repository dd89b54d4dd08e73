import { readdir, readFile } from 'node:fs/promises'
import { sessionDirs } from '@ash-ai/sandbox'
import type { AgentDeploy, SessionCreate } from '@ash-ai/sdk'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { base64, scripted } from './support/conversation.ts'
import {
  addTenant,
  countCreates,
  endSessions,
  killSandboxes,
  metric,
  mountsOf,
  readySpares,
  sandboxFolders,
  spareIds,
  storedSandboxes,
} from './support/pool-view.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

const AGENT_SECRET = 'agent-secret-4711'
const SESSION_SECRET = 'session-secret-4711'
const CREDENTIAL = 'credential-4711-0123456789'

const SOON = { timeout: 10_000 }

let server: TestServer

function useServer(env: Record<string, string> = {}): void {
  beforeAll(async () => {
    server = await startTestServer({ env })
  })
  afterAll(() => server.close())
  afterEach(async () => {
    await endSessions(server)
    for (const { name } of (await server.client.agents.list()).agents) await server.client.agents.delete(name)
  })
}

const deploy = (config: AgentDeploy['config'], more: Partial<AgentDeploy> = {}, { client } = server) =>
  client.agents.deploy({
    name: 'ready',
    systemPrompt: 'You are ready.',
    env: { AGENT_SECRET },
    ...(config && { config }),
    ...more,
  })
const create = (about: Partial<SessionCreate> = {}) =>
  server.client.sessions.create({ agent: 'ready', ...about })
const run = async (id: string, command: string) => (await server.client.sessions.exec(id, { command })).stdout

describe('spares of an agent', () => {
  useServer()

  test('become the sandboxes of new sessions, and others take their place', async () => {
    await deploy({ warm: 2 })
    const ready = await readySpares(server, 2)
    expect(await metric(server, 'ash_pool_sandboxes{state="warm"}')).toBe(2)
    const made: Awaited<ReturnType<typeof create>>[] = []
    expect(await countCreates(server, async () => made.push(await create(), await create()))).toEqual({
      warm: 2,
      cold: 0,
    })
    expect(made.map(({ sandboxId }) => sandboxId).sort()).toEqual(ready)
    for (const { id, status, sandboxState } of made) {
      expect([status, sandboxState]).toEqual(['active', 'waiting'])
      expect(await run(id, 'cat CLAUDE.md')).toContain('You are ready.')
    }
    const next = await readySpares(server, 2)
    expect(next.filter((id) => ready.includes(id))).toEqual([])
    expect(storedSandboxes(server).filter(({ sessionId }) => sessionId === made[0]?.id)).toMatchObject([
      { id: made[0]?.sandboxId },
    ])
  })

  test('know nothing of anybody', async () => {
    const { client } = server
    await client.credentials.create({
      name: 'api',
      hosts: ['api.example'],
      secret: CREDENTIAL,
      scheme: { type: 'bearer' },
    })
    await deploy({ warm: 2, credentials: ['api'] })
    await readySpares(server, 2)
    const processes = await server.listSandboxProcesses()
    expect(new Set(processes.map(({ uid }) => uid)).size).toBe(2)
    for (const { pid, command } of processes) {
      const environ = await readFile(`/proc/${pid}/environ`, 'utf8')
      expect(environ + command).not.toMatch(/4711|sk-real-key|ash-session-/)
      expect(command).not.toContain('claude')
    }
    for (const id of await sandboxFolders(server)) {
      const { home, workspace } = sessionDirs(server.dataDir, id)
      expect([await readdir(home), await readdir(workspace)]).toEqual([[], ['CLAUDE.md']])
    }
    expect((await client.sessions.list({ agent: 'ready', status: 'starting' })).sessions).toEqual([])
    // And that would be seen: a session has what they have not.
    const { id } = await create({ env: { SESSION_SECRET } })
    await client.sessions.send(id, scripted({ text: 'hello' })).text()
    const commands = (await server.listSandboxProcesses()).map(({ command }) => command)
    expect(commands.filter((command) => command.includes('/claude'))).not.toEqual([])
    expect(await readdir(sessionDirs(server.dataDir, id).home)).not.toEqual([])
    await client.sessions.end(id)
    await client.agents.delete('ready')
    await client.credentials.delete('api')
  })

  test('give way to a new version, to fewer, and go with the agent', async () => {
    await deploy({ warm: 2 })
    const old = await readySpares(server, 2)
    await deploy({ warm: 1, model: 'claude-haiku-4-5' })
    await eventually(
      () => storedSandboxes(server),
      (all) => all.length === 1 && all[0]?.agentVersion === 2 && all[0]?.state === 'warm',
    )
    expect(spareIds(server).filter((id) => old.includes(id))).toEqual([])
    const session = await create()
    expect(session).toMatchObject({ agentVersion: 2 })
    expect(old).not.toContain(session.sandboxId)
    await deploy({ warm: 0 })
    await expect.poll(() => storedSandboxes(server), SOON).toMatchObject([{ sessionId: session.id }])
    await expect.poll(() => sandboxFolders(server), SOON).toEqual([session.id])
    await deploy({ warm: 1 })
    await readySpares(server, 1)
    await server.client.sessions.end(session.id)
    await server.client.agents.delete('ready')
    await expect.poll(() => spareIds(server), SOON).toEqual([])
    expect([await sandboxFolders(server), await mountsOf(server)]).toEqual([[], []])
  })

  test('are for sessions of the newest version with its limits; others start as without', async () => {
    await deploy({ warm: 1, limits: { processes: 100 } })
    const ready = await readySpares(server, 1)
    const other: Partial<SessionCreate>[] = [{ limits: { processes: 101 } }, { limits: { memoryMb: 512 } }]
    for (const about of other) {
      expect(await countCreates(server, () => create(about))).toEqual({ warm: 0, cold: 1 })
      expect(spareIds(server)).toEqual(ready)
    }
    expect(await countCreates(server, () => create({ limits: { processes: 100 } }))).toEqual({
      warm: 1,
      cold: 0,
    })
    await deploy({ warm: 1, limits: { processes: 90 } })
    await eventually(
      () => storedSandboxes(server),
      (all) => all.some(({ agentVersion, state }) => agentVersion === 2 && state === 'warm'),
    )
    expect(await countCreates(server, () => create({ agentVersion: 1 }))).toEqual({ warm: 0, cold: 1 })
    let id = ''
    const make = async () => {
      const session = await create()
      id = session.id
      expect(session.limits).toMatchObject({ processes: 90 })
    }
    expect(await countCreates(server, make)).toEqual({ warm: 1, cold: 0 })
    // More than there may be, and the kernel says so.
    const { stdout, stderr } = await server.client.sessions.exec(id, {
      command: 'for n in $(seq 120); do sleep 2 & done; wait',
    })
    expect(stdout + stderr).toMatch(/fork|Resource temporarily unavailable/)
    const hits = async () => (await server.client.sessions.events(id, { types: ['limit'] })).events
    await expect
      .poll(hits, { timeout: 10_000 })
      .toMatchObject([{ data: { resource: 'processes', limit: 90 } }])
  })

  test('are never another tenant’s', async () => {
    const theirs = addTenant(server, 'other')
    await deploy({ warm: 1 })
    await deploy({ warm: 0 }, {}, { ...server, client: theirs })
    const ready = await readySpares(server, 1)
    const session = await theirs.sessions.create({ agent: 'ready' })
    expect(ready).not.toContain(session.sandboxId)
    expect(spareIds(server)).toEqual(ready)
    expect(await create()).toMatchObject({ sandboxId: ready[0] })
    await theirs.sessions.end(session.id)
    await theirs.agents.delete('ready')
  })

  test('that are killed from outside are replaced, and leave nothing', async () => {
    await deploy({ warm: 1 })
    const [spare] = await readySpares(server, 1)
    const [folder] = await sandboxFolders(server)
    await killSandboxes(server)
    await expect.poll(() => sandboxFolders(server), SOON).not.toContain(folder)
    const [next] = await eventually(
      () => spareIds(server),
      ([id]) => id !== undefined && id !== spare,
    )
    expect(await create()).toMatchObject({ sandboxId: next })
  })

  test('of an older state of the agent are nobody’s, also in the moment of its deployment', async () => {
    for (const word of ['first', 'second', 'third']) {
      await deploy({ warm: 1 }, { systemPrompt: `Say ${word}.`, env: { WORD: word } })
      const { id } = await create()
      expect(await run(id, 'cat CLAUDE.md; echo; echo $WORD')).toMatch(
        new RegExp(`Say ${word}\\.\\s+${word}\n$`),
      )
      await readySpares(server, 1)
    }
  })

  test('that die in the moment they are wanted cost nobody a session', async () => {
    await deploy({ warm: 2 })
    for (let round = 0; round < 2; round++) {
      await eventually(
        () => spareIds(server),
        ({ length }) => length > 0,
      )
      await killSandboxes(server, 1)
      const { id } = await create()
      // Whoever got a spare that was only about to die finds another sandbox with the next call.
      const answer = () => run(id, 'echo alive').catch(({ code }: { code: string }) => code)
      await eventually(answer, (told) => told === 'alive\n')
      await server.client.sessions.end(id)
    }
  })

  test('have what the agent installs, once a session has built it, and its log says so', async () => {
    const files = [{ path: 'install.sh', content: base64('echo installing; date +%s%N > ~/stamp') }]
    await deploy({ warm: 1 }, { files })
    let id = ''
    const make = async () => {
      id = (await create()).id
    }
    expect(await countCreates(server, make)).toEqual({ warm: 0, cold: 1 })
    const stamp = await run(id, 'cat ~/stamp')
    await readySpares(server, 1)
    expect(await countCreates(server, make)).toEqual({ warm: 1, cold: 0 })
    expect(await run(id, 'cat ~/stamp')).toBe(stamp)
    const { events } = await server.client.sessions.events(id, { types: ['log'] })
    expect(JSON.stringify(events)).toContain('Reused layer')
  })

  test('are claimed once each, however many sessions are made at the same time', async () => {
    await deploy({ warm: 2 })
    await readySpares(server, 2)
    const make = (_: unknown, n: number) => create({ env: { NUMBER: String(n) } })
    let made: Awaited<ReturnType<typeof create>>[] = []
    const counts = await countCreates(server, async () => {
      made = await Promise.all(Array.from({ length: 5 }, make))
    })
    expect(counts.warm).toBeGreaterThanOrEqual(2)
    expect(counts.warm + counts.cold).toBe(5)
    expect(new Set(made.map(({ sandboxId }) => sandboxId)).size).toBe(5)
    const told = await Promise.all(made.map(({ id }) => run(id, 'echo $NUMBER; id -u > /dev/null')))
    expect(told).toEqual(['0\n', '1\n', '2\n', '3\n', '4\n'])
  })
})

describe('spares in a pool of two', () => {
  useServer({ ASH_MAX_SANDBOXES: '2' })

  const startCommand = async (id: string) => {
    const ended = run(id, 'until [ -e go ]; do sleep 0.02; done; rm go')
    await eventually(
      () => server.client.sessions.get(id),
      ({ sandboxState }) => sandboxState === 'running',
    )
    return { end: () => server.client.files.write(id, 'go', '').then(() => ended) }
  }

  test('make room for a session that is made, and come back when there is room', async () => {
    await deploy({ warm: 1 })
    const [first] = await readySpares(server, 1)
    const busy = await create()
    expect(busy.sandboxId).toBe(first)
    const command = await startCommand(busy.id)
    const [second] = await readySpares(server, 1)
    const other = await create({ limits: { processes: 100 } })
    await expect.poll(() => spareIds(server), SOON).toEqual([])
    await expect.poll(() => sandboxFolders(server), SOON).toEqual([busy.id, other.id].sort())
    expect(await server.client.health()).toMatchObject({ sandboxes: { live: 2 } })
    await server.client.sessions.end(other.id)
    const [third] = await readySpares(server, 1)
    expect([first, second]).not.toContain(third)
    await command.end()
  })

  test('make room for a session that is resumed, and come back when there is room', async () => {
    await deploy({ warm: 1 })
    await readySpares(server, 1)
    const [busy, stopped] = [await create(), await create()]
    await server.client.sessions.stop(stopped.id)
    const command = await startCommand(busy.id)
    await readySpares(server, 1)
    expect(await server.client.sessions.resume(stopped.id)).toMatchObject({ resumed: 'cold_local' })
    await expect.poll(() => spareIds(server), SOON).toEqual([])
    await server.client.sessions.end(stopped.id)
    await readySpares(server, 1)
    await command.end()
  })
})

describe('a server with spares', () => {
  useServer({ ASH_WARM_SPARES: '2' })

  test.each(['SIGTERM', 'SIGKILL'])(
    'that ends by %s leaves none of them, and has others next time',
    async (signal) => {
      await deploy({})
      await readySpares(server, 2)
      const { id } = await create()
      const old = [...(await readySpares(server, 2)), ...(await sandboxFolders(server))].filter(
        (name) => name !== id,
      )
      if (signal === 'SIGTERM') {
        expect(await server.stop()).toBe(0)
        expect(storedSandboxes(server)).toEqual([])
        expect(await sandboxFolders(server)).toEqual([id])
        expect(await mountsOf(server)).toEqual([])
      } else await server.kill()
      await eventually(server.sandboxProcesses, (count) => count === 0)
      await server.start()
      const ready = await readySpares(server, 2)
      const now = [
        ...ready,
        ...(await sandboxFolders(server)),
        ...storedSandboxes(server).map((row) => row.id),
      ]
      expect(now.filter((name) => old.includes(name))).toEqual([])
      const mounted = (await mountsOf(server)).map((point) => point.split('/').at(-2))
      expect(mounted.filter((name) => name !== undefined && old.includes(name))).toEqual([])
      expect(await countCreates(server, () => create())).toEqual({ warm: 1, cold: 0 })
    },
  )

  test('that stops while it prepares them leaves none', async () => {
    await deploy({ warm: 3 })
    await eventually(server.sandboxProcesses, (count) => count > 0)
    expect(await server.stop()).toBe(0)
    await eventually(server.sandboxProcesses, (count) => count === 0)
    expect([storedSandboxes(server), await sandboxFolders(server), await mountsOf(server)]).toEqual([
      [],
      [],
      [],
    ])
    await server.start()
  })
})

describe('interpreters that wait for single runs', () => {
  useServer()
  const warm = { ephemeral: { min: 1, target: 1, idle: 600_000 } }
  const schedules = async () => ({
    warm: await metric(server, 'ash_schedule_total{path="warm"}'),
    cold: await metric(server, 'ash_schedule_total{path="cold"}'),
  })

  test('are not for runs that an interpreter would have to be started otherwise for', async () => {
    await server.client.templates.create({ name: 'quick', languages: ['python', 'shell'], warm })
    await readySpares(server, 1)
    const code = 'import sys\nsys.flags.optimize'
    const plain = await server.client.execute({ template: 'quick', code, env: { WORD: 'x' } })
    expect(plain).toMatchObject({ path: 'warm', result: 0 })
    await readySpares(server, 1)
    const env = { PYTHONOPTIMIZE: '2' }
    expect(await server.client.execute({ template: 'quick', code, env })).toMatchObject({
      path: 'cold',
      result: 2,
    })
  })

  test('count as used only where they are', async () => {
    await readySpares(server, 1)
    const before = await schedules()
    const { id } = await server.client.sessions.create({ template: 'quick', mode: 'ephemeral' })
    expect(await schedules()).toEqual(before)
    await server.client.sessions.end(id)
    const shell = await server.client.execute({ template: 'quick', language: 'shell', code: 'echo 1' })
    expect(shell.path).toBe('cold')
    expect(await schedules()).toEqual({ ...before, cold: before.cold + 1 })
  })

  test('are of the first language, also when that has become another', async () => {
    const [old] = await readySpares(server, 1)
    await server.client.templates.put({ name: 'quick', languages: ['shell', 'python'], warm })
    await eventually(
      async () => spareIds(server),
      (ids) => ids.length === 1 && ids[0] !== old,
    )
    expect(await server.client.execute({ template: 'quick', code: 'echo 1' })).toMatchObject({ path: 'warm' })
  })
})
