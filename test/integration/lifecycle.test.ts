import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { bash, deployTestAgent, endOf, scripted, startEndlessTurn } from './support/conversation.ts'
import { eventually } from './support/sandbox-processes.ts'
import { startTestServer, type TestServer } from './support/test-server.ts'

let server: TestServer
let id: string
beforeAll(async () => {
  server = await startTestServer({ env: { ASH_SHUTDOWN_TIMEOUT_MS: '2000' } })
  await deployTestAgent(server.client)
})
afterAll(() => server.close())
beforeEach(async () => {
  id = (await server.client.sessions.create({ agent: 'zebra' })).id
})
afterEach(async () => {
  await server.client.sessions.end(id)
})

const run = async (command: string, session = id) =>
  (await server.client.sessions.exec(session, { command })).stdout
const say = (text: string) => scripted({ text })
const statuses = async (session = id) =>
  (await server.client.sessions.events(session, { types: ['status'] })).events.map(({ data }) => data)
const checkpoints = async (session = id) => (await server.client.checkpoints.list(session)).checkpoints

/** Everything under the session's users that is not frozen counts up; a frozen one stands still. */
const ticks = async () => Number(await server.client.files.readText(id, 'ticks').catch(() => '0'))
const tick =
  "setsid -f sh -c 'n=0; while true; do n=$((n+1)); echo $n > .t && mv .t ticks; sleep 0.01; done' > /dev/null 2>&1; until [ -e ticks ]; do sleep 0.01; done"

describe('a session that is paused', () => {
  test('stands still, keeps its sandbox and goes on in it', async () => {
    const { client } = server
    await run(tick)
    await eventually(ticks, (count) => count > 3)
    expect(await client.sessions.pause(id)).toMatchObject({ status: 'paused', sandboxState: 'waiting' })
    const before = await ticks()
    expect(await client.sessions.pause(id)).toMatchObject({ status: 'paused' })
    expect(await ticks()).toBe(before)
    const resumed = await client.sessions.resume(id)
    expect(resumed).toMatchObject({ status: 'active', resumed: 'warm' })
    await eventually(ticks, (count) => count > before)
    expect(await client.sessions.resume(id)).toMatchObject({ resumed: 'none' })
    expect(await statuses()).toEqual([{ status: 'active' }, { status: 'paused' }, { status: 'active' }])
  })

  test('has a checkpoint, and loses its sandbox when it is stopped', async () => {
    const { client } = server
    await run('echo kept > kept.txt; mkdir empty; ln -s kept.txt link; chmod 700 kept.txt')
    const { checkpointId } = await client.sessions.pause(id)
    expect(await checkpoints()).toMatchObject([{ id: checkpointId, reason: 'pause', isCurrent: true }])
    const stopped = await client.sessions.stop(id)
    expect(stopped).toMatchObject({ status: 'paused', sandboxState: 'cold' })
    expect(stopped.sandboxId).toBeUndefined()
    expect(await client.files.readText(id, 'kept.txt')).toBe('kept\n')
    expect(await client.sessions.resume(id)).toMatchObject({ status: 'active', resumed: 'cold_local' })
    expect(await run('cat link; ls -ld empty kept.txt | cut -c1-10')).toBe('kept\ndrwxr-xr-x\n-rwx------\n')
  })

  test('wakes for whatever needs it', async () => {
    const { client } = server
    await client.sessions.pause(id)
    expect(await run('echo hi')).toBe('hi\n')
    await client.sessions.stop(id)
    expect(await client.sessions.send(id, say('awake')).text()).toBe('awake')
    expect(await client.sessions.get(id)).toMatchObject({ status: 'active' })
  })

  test('refuses that where it was made so, until it is resumed', async () => {
    const { client } = server
    await client.sessions.patch(id, { autoResume: false })
    expect(await run('echo hi')).toBe('hi\n')
    await client.sessions.pause(id)
    await expect(run('echo hi')).rejects.toMatchObject({ code: 'session_paused', statusCode: 409 })
    await expect(client.sessions.send(id, 'hi').result()).rejects.toMatchObject({ code: 'session_paused' })
    await client.files.write(id, 'note.txt', 'files need no sandbox')
    await client.sessions.resume(id)
    expect(await run('cat note.txt')).toBe('files need no sandbox')
  })

  test('is woken once, however many ask at the same time', async () => {
    const { client } = server
    for (const pause of ['pause', 'stop'] as const) {
      await client.sessions[pause](id)
      const resumes = await Promise.all(Array.from({ length: 8 }, () => client.sessions.resume(id)))
      expect(new Set(resumes.map(({ sandboxId }) => sandboxId)).size).toBe(1)
    }
    expect((await statuses()).length).toBe(5)
  })
})

describe('pausing during a turn', () => {
  test('waits for its end', async () => {
    const { client } = server
    const turn = client.sessions.send(id, scripted(bash('sleep 1; echo done > file'), { text: 'finished' }))
    const ended = endOf(turn)
    await eventually(
      () => client.sessions.get(id),
      ({ sandboxState }) => sandboxState === 'running',
    )
    expect(await client.sessions.pause(id)).toMatchObject({ status: 'paused' })
    expect(await ended).toMatchObject({ type: 'done', stopReason: 'end_turn' })
    expect(await client.files.readText(id, 'file')).toBe('done\n')
  })

  test('is cut short when the session is ended meanwhile', async () => {
    const { client } = server
    const turn = await startEndlessTurn(client, id)
    const pausing = client.sessions.pause(id)
    await client.sessions.end(id)
    await pausing
    expect((await endOf(turn)).type).toMatch(/done|error/)
    expect(await client.sessions.get(id)).toMatchObject({ status: 'ended' })
    await expect(client.sessions.resume(id)).rejects.toMatchObject({ code: 'session_gone', statusCode: 410 })
    await expect(client.sessions.pause(id)).rejects.toMatchObject({ code: 'session_ended' })
    await expect(client.sessions.fork(id)).rejects.toMatchObject({ code: 'session_ended' })
    expect(await checkpoints()).toEqual([])
  })
})

describe('checkpoints', () => {
  test('follow each turn, in the log and in the list', async () => {
    const { client } = server
    for (const name of ['one', 'two'])
      await client.sessions.send(id, scripted(bash(`echo ${name} > ${name}.txt`), { text: name })).text()
    const [second, first] = await eventually(
      checkpoints,
      (all) => all.length === 2 && all[0]?.isCurrent === true,
    )
    if (!first || !second) throw new Error('no checkpoints')
    expect([first, second]).toMatchObject([
      { reason: 'turn', isCurrent: false },
      { reason: 'turn', isCurrent: true },
    ])
    const { events } = await client.sessions.events(id, { types: ['done', 'checkpoint'] })
    expect(events.map(({ type }) => type)).toEqual(['done', 'checkpoint', 'done', 'checkpoint'])
    expect(events[0]?.seq).toBe(first.seq)
    expect(events[1]?.data).toMatchObject({ id: first.id, seq: first.seq, files: first.files })
    const diff = await client.checkpoints.diff(id, { from: first.id, to: second.id })
    expect(diff).toMatchObject({
      added: [{ path: 'two.txt', type: 'file', size: 4 }],
      changed: [],
      removed: [],
      turns: [{ turnId: second.turnId }],
    })
    expect(await client.files.list(id, { checkpointId: first.id })).toMatchObject({
      source: 'checkpoint',
      files: [{ path: 'CLAUDE.md' }, { path: 'one.txt' }],
    })
    await expect(client.checkpoints.delete(id, second.id)).rejects.toMatchObject({ code: 'session_conflict' })
    await client.checkpoints.delete(id, first.id)
    await expect(client.checkpoints.delete(id, first.id)).rejects.toMatchObject({
      code: 'checkpoint_not_found',
    })
  })

  test('are only kept as long and as many as the session says', async () => {
    const { client } = server
    await client.sessions.patch(id, { checkpoints: { every: 'pause', keep: 2 } })
    await client.sessions.send(id, say('no checkpoint follows')).text()
    for (let round = 0; round < 4; round++) {
      await client.files.write(id, 'round', String(round))
      await client.checkpoints.create(id)
    }
    const same = await client.checkpoints.create(id)
    const kept = await eventually(checkpoints, (all) => all.length === 2)
    // Nothing had changed since the last one.
    expect(kept).toMatchObject([{ id: same.id, reason: 'request', isCurrent: true }, { reason: 'request' }])
    const oldest = kept[1]?.id ?? ''
    await client.sessions.patch(id, { checkpoints: { every: 'pause', keep: 1 } })
    await client.files.write(id, 'round', 'last')
    await client.sessions.rollback(id, { checkpointId: oldest })
    expect(await client.files.readText(id, 'round')).toBe('2')
    expect(await run('cat round')).toBe('2')
  })
})

describe('a fork', () => {
  test('begins as its parent was, and goes its own way', async () => {
    const { client } = server
    await client.sessions.send(id, scripted(bash('echo mine > file'), { text: 'the word is zebra' })).text()
    const fork = await client.sessions.fork(id)
    expect(fork).toMatchObject({ status: 'paused', parentSessionId: id, sandboxState: 'cold' })
    expect(await client.files.list(fork.id)).toMatchObject({ source: 'checkpoint' })
    expect(await client.files.readText(fork.id, 'file')).toBe('mine\n')
    // The model sees the whole conversation; the script answers with what it was sent before.
    const told = await client.sessions.send(fork.id, scripted({ text: 'heard: {{prompts}}' })).text()
    expect(told).toContain('the word is zebra')
    await run('echo theirs > file', fork.id)
    expect(await run('cat file')).toBe('mine\n')
    expect(await run('cat file', fork.id)).toBe('theirs\n')
    const { messages } = await client.sessions.messages(fork.id)
    expect(messages.filter(({ type }) => type === 'turn')).toHaveLength(2)
    expect(messages.map(({ seq }) => seq)).toEqual(messages.map(({ seq }) => seq).sort((a, b) => a - b))
    await client.sessions.end(fork.id)
  })

  test('outlives its parent', async () => {
    const { client } = server
    const parent = await client.sessions.create({ agent: 'zebra' })
    await client.sessions.send(parent.id, scripted(bash('echo old > file'), { text: 'from before' })).text()
    const fork = await client.sessions.fork(parent.id)
    const second = await client.sessions.fork(fork.id)
    await client.sessions.end(parent.id)
    await client.gc()
    for (const session of [fork, second]) {
      expect(await run('cat file', session.id)).toBe('old\n')
      expect(JSON.stringify(await client.sessions.messages(session.id))).toContain('from before')
      await client.sessions.end(session.id)
    }
  })

  test('can be made of any checkpoint of a session, and of no other', async () => {
    const { client } = server
    await run('echo 1 > file')
    const first = await client.checkpoints.create(id)
    await run('echo 2 > file')
    const fork = await client.sessions.fork(id, { checkpointId: first.id })
    expect(await run('cat file', fork.id)).toBe('1\n')
    await expect(client.sessions.fork(fork.id, { checkpointId: first.id })).rejects.toMatchObject({
      code: 'checkpoint_not_found',
    })
    await client.sessions.end(fork.id)
  })
})

describe('a rollback', () => {
  test('takes files and conversation back, keeps the log, and can be undone', async () => {
    const { client } = server
    await client.sessions.send(id, scripted(bash('echo 1 > file'), { text: 'first' })).text()
    const [first] = await eventually(checkpoints, (all) => all.length === 1)
    await client.sessions.send(id, scripted(bash('echo 2 > file; touch new'), { text: 'second' })).text()
    const before = (await client.sessions.events(id)).events.length
    const back = await client.sessions.rollback(id, { checkpointId: first?.id ?? '' })
    expect(back).toMatchObject({ status: 'paused', checkpointId: first?.id, sandboxState: 'cold' })
    expect(await client.files.readText(id, 'file')).toBe('1\n')
    expect((await client.files.list(id)).files.map(({ path }) => path)).toEqual(['CLAUDE.md', 'file'])
    const seen = await client.sessions.send(id, scripted({ text: 'heard: {{prompts}}' })).text()
    expect(seen).toContain('first')
    expect(seen).not.toContain('second')
    expect((await client.sessions.events(id)).events.length).toBeGreaterThan(before)
    expect(await statuses()).toContainEqual({
      status: 'paused',
      rolledBackTo: { checkpointId: first?.id, seq: first?.seq },
    })
    const undo = (await checkpoints()).find(({ reason }) => reason === 'rollback')
    await client.sessions.rollback(id, { checkpointId: undo?.id ?? '' })
    expect(await run('cat file; ls new')).toBe('2\nnew\n')
  })

  test('is refused while the session works', async () => {
    const { client } = server
    const { id: checkpointId } = await client.checkpoints.create(id)
    const turn = await startEndlessTurn(client, id)
    await expect(client.sessions.rollback(id, { checkpointId })).rejects.toMatchObject({
      code: 'turn_in_progress',
    })
    await client.sessions.interrupt(id)
    await turn.result().catch(() => {})
  })
})
