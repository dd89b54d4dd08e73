import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { bash, deployTestAgent, endOf, scripted, startEndlessTurn } from './support/conversation.ts'
import { endSessions, killSandboxes, metric, sandboxFolders, storedSandboxes } from './support/pool-view.ts'
import { expectError, post, request } from './support/refusals.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer

/** A server for each group; what its tests made is ended after each. */
function useServer(env: Record<string, string>): void {
  beforeAll(async () => {
    server = await startTestServer({ env })
    await deployTestAgent(server.client)
  })
  afterAll(() => server.close())
  afterEach(() => endSessions(server))
}

const openSessions = async () =>
  (await server.client.sessions.list({ limit: 100 })).sessions.filter(({ status }) => status !== 'ended')
const create = async () => (await server.client.sessions.create({ agent: 'zebra' })).id
const run = async (id: string, command: string) => (await server.client.sessions.exec(id, { command })).stdout
const get = (id: string) => server.client.sessions.get(id)
const statuses = async (id: string) =>
  (await server.client.sessions.events(id, { types: ['status'] })).events.map(
    ({ data }) => (data as { status: string }).status,
  )
const evictions = (reason: string) => metric(server, `ash_evictions_total{reason="${reason}"}`)
/** A command that runs until the file `go` is there, and says that it runs. */
const startCommand = async (id: string) => {
  const ended = run(id, 'touch here; until [ -e go ]; do sleep 0.02; done; rm go; echo went')
  await eventually(
    () => server.client.files.list(id),
    ({ files }) => files.some(({ path }) => path === 'here'),
  )
  return { end: () => server.client.files.write(id, 'go', ''), ended }
}

describe('a pool of two', () => {
  useServer({ ASH_MAX_SANDBOXES: '2' })

  test('takes the slot of the session used longest ago, which loses nothing by that', async () => {
    const { client } = server
    const first = await create()
    await client.sessions.send(first, scripted(bash('echo mine > file'), { text: 'zebra' })).text()
    const second = await create()
    await run(second, 'echo theirs > file')
    await run(first, 'true') // Made first, used last.
    const before = await evictions('capacity')
    const third = await create()
    expect(await get(second)).toMatchObject({ status: 'paused', sandboxState: 'cold' })
    expect((await client.checkpoints.list(second)).checkpoints).toMatchObject([{ reason: 'pause' }])
    expect(await client.files.readText(second, 'file')).toBe('theirs\n')
    expect(await run(second, 'cat file')).toBe('theirs\n')
    expect(await get(first)).toMatchObject({ status: 'paused', sandboxState: 'cold' })
    const told = await client.sessions.send(first, scripted({ text: 'heard: {{prompts}}' })).text()
    expect(told).toContain('zebra')
    expect(await run(first, 'cat file')).toBe('mine\n')
    expect(await get(third)).toMatchObject({ status: 'paused', sandboxState: 'cold' })
    expect((await evictions('capacity')) - before).toBe(3)
    expect(await client.health()).toMatchObject({ sandboxes: { live: 2, max: 2 } })
  })

  test('takes the frozen sandbox of a paused session too', async () => {
    const { client } = server
    const first = await create()
    await run(first, 'echo kept > file')
    await client.sessions.pause(first)
    const checkpoints = (await client.checkpoints.list(first)).checkpoints
    await create()
    expect(await get(first)).toMatchObject({ status: 'paused', sandboxState: 'waiting' })
    await create()
    expect(await get(first)).toMatchObject({ status: 'paused', sandboxState: 'cold' })
    expect((await client.checkpoints.list(first)).checkpoints).toEqual(checkpoints)
    expect(await client.sessions.resume(first)).toMatchObject({ resumed: 'cold_local' })
    expect(await run(first, 'cat file')).toBe('kept\n')
    expect(await statuses(first)).toEqual(['active', 'paused', 'active'])
  })

  test('never takes a turn or a command from its session, and says when to come again', async () => {
    const { client } = server
    const waiting = await create()
    await client.sessions.send(waiting, scripted({ text: 'before' })).text()
    await client.sessions.stop(waiting)
    const [talking, working] = [await create(), await create()]
    const turn = await startEndlessTurn(client, talking)
    const command = await startCommand(working)
    const known = await sandboxFolders(server)

    const refused = await request(server, post('/api/sessions', { agent: 'zebra' }))
    expectError(refused, { status: 503, code: 'pool_full', names: 'All 2 sandboxes' })
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
    expect((await openSessions()).map(({ id }) => id).sort()).toEqual([waiting, talking, working].sort())
    expect(await sandboxFolders(server)).toEqual(known)

    const full = { code: 'pool_full', statusCode: 503, retryAfterSeconds: expect.any(Number) }
    await expect(client.sessions.resume(waiting)).rejects.toMatchObject(full)
    await expect(run(waiting, 'true')).rejects.toMatchObject(full)
    await expect(client.sessions.send(waiting, 'mark-4711').text()).rejects.toMatchObject(full)
    expect(await get(waiting)).toMatchObject({ status: 'paused', sandboxState: 'cold' })
    expect((await get(waiting)).error).toBeUndefined()
    expect(JSON.stringify(await client.sessions.messages(waiting))).not.toContain('mark-4711')
    expect(await client.files.list(waiting)).toMatchObject({ source: 'live' })

    await command.end()
    expect(await command.ended).toBe('went\n')
    const told = await client.sessions.send(waiting, scripted({ text: 'heard: {{prompts}}' })).text()
    expect(told).toContain('before')
    expect(await get(working)).toMatchObject({ status: 'paused', sandboxState: 'cold' })
    expect(await get(talking)).toMatchObject({ status: 'active', sandboxState: 'running' })
    expect(await statuses(talking)).toEqual(['active'])
    await client.sessions.interrupt(talking)
    await endOf(turn)
  })

  test('refuses a session in error no worse: its reason stays, and it goes on later', async () => {
    const { client } = server
    const broken = await create()
    await run(broken, 'echo kept > file')
    await killSandboxes(server)
    await eventually(
      () => get(broken),
      ({ status }) => status === 'error',
    )
    const commands = await Promise.all([create(), create()].map(async (id) => startCommand(await id)))
    await expect(run(broken, 'true')).rejects.toMatchObject({ code: 'pool_full' })
    expect(await get(broken)).toMatchObject({ status: 'error', error: { code: 'sandbox_died' } })
    for (const { end, ended } of commands) await end().then(() => ended)
    expect(await run(broken, 'cat file')).toBe('kept\n')
    expect(await client.health()).toMatchObject({ sandboxes: { live: 2 } })
  })

  test('serves more sessions than it has slots, all at once, without a command lost or run twice', async () => {
    const ids = await Promise.all([create(), create()])
    ids.push(await create(), await create())
    const done: Record<string, string[]> = Object.fromEntries(ids.map((id) => [id, []]))
    const use = async (id: string, word: string) => {
      for (;;) {
        const outcome = await run(id, `echo ${word} >> words; echo ${word}`).catch((error: unknown) => error)
        if (outcome === `${word}\n`) return done[id]?.push(word)
        expect(outcome).toMatchObject({ code: 'pool_full' })
      }
    }
    const words = ['a', 'b', 'c']
    await Promise.all(ids.flatMap((id) => words.map((word) => use(id, word))))
    for (const id of ids) {
      const stored = (await server.client.files.readText(id, 'words')).trim().split('\n')
      expect(stored.sort()).toEqual(words)
      expect(done[id]?.sort()).toEqual(words)
    }
    expect((await server.client.health()).sandboxes.live).toBeLessThanOrEqual(2)
  })
})

describe('a pool of five', () => {
  useServer({ ASH_MAX_SANDBOXES: '5' })

  test('holds no more than that, however many sessions are made at once', async () => {
    const { client } = server
    const watch = watchSandboxes()
    const made = await Promise.allSettled(Array.from({ length: 20 }, create))
    const ids = made.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []))
    for (const each of made)
      if (each.status === 'rejected')
        expect(each.reason).toMatchObject({ code: 'pool_full', statusCode: 503 })
    expect(ids.length).toBeGreaterThanOrEqual(5)
    // As many as there are slots, all of which wait: each finds one to take.
    while (ids.length < 20) ids.push(...(await Promise.all(Array.from({ length: 5 }, create))))
    const seen = await watch.end()
    expect(seen.samples).toBeGreaterThan(3)
    expect(seen).toMatchObject({ live: 5, users: 5 })

    const sessions = await openSessions()
    expect(sessions.map(({ id }) => id).sort()).toEqual([...ids].sort())
    expect(sessions.filter(({ status }) => status !== 'active' && status !== 'paused')).toEqual([])
    expect(await sandboxFolders(server)).toEqual([...ids].sort())
    const { live } = (await client.health()).sandboxes
    await expect.poll(() => storedSandboxes(server).length, { timeout: 10_000 }).toBe(live)
    for (const id of ids) expect((await client.files.list(id)).files).toMatchObject([{ path: 'CLAUDE.md' }])
    for (const id of ids.slice(0, 3)) expect(await run(id, 'ls')).toBe('CLAUDE.md\n')
  })
})

/** The most sandboxes that live at the same time, as the server says and as the users of processes tell. */
function watchSandboxes() {
  let isOver = false
  const seen = { live: 0, users: 0, samples: 0 }
  const watch = async () => {
    while (!isOver) {
      const { sandboxes } = await server.client.health()
      // Without those that are dead and only not reaped yet.
      const alive = (await server.listSandboxProcesses()).filter(({ command }) => command !== '')
      const users = new Set(alive.map(({ uid }) => uid)).size
      seen.live = Math.max(seen.live, sandboxes.live)
      seen.users = Math.max(seen.users, users)
      seen.samples++
    }
    return seen
  }
  const watching = watch()
  const end = () => {
    isOver = true
    return watching
  }
  return { end }
}
