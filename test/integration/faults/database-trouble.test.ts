import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { isAshError } from '@ash-ai/shared'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { deployTestAgent } from '../support/conversation.ts'
import { eventually } from '../support/sandbox-processes.ts'
import { startTestServer, type TestServer } from '../support/test-server.ts'
import { expectSameEntries, expectTurns, expectWhole, type SentTurn } from './support/log-invariants.ts'
import { buildPacedBridge } from './support/paced-bridge.ts'
import { answerOf, type PacedTurn } from './support/paced-turn.ts'
import { RawLogReader } from './support/raw-log-reader.ts'
import { mountSmallDisk, type SmallDisk } from './support/small-disk.ts'
import { sqliteLog } from './support/stored-log.ts'
import { lockDatabase } from './support/write-lock.ts'

let bridge: Awaited<ReturnType<typeof buildPacedBridge>>
beforeAll(async () => {
  bridge = await buildPacedBridge()
})
afterAll(() => bridge[Symbol.asyncDispose]())

let server: TestServer
let sessionId: string
let reader: RawLogReader

async function startSession(options: { dataDir?: string } = {}): Promise<void> {
  server = await startTestServer({ ...options, env: { ASH_BRIDGE_ENTRY: bridge.path } })
  await deployTestAgent(server.client)
  sessionId = (await server.client.sessions.create({ agent: 'zebra' })).id
  reader = new RawLogReader({ url: server.url, apiKey: server.apiKey, sessionId })
}

/** Sends a message; `reachedMiddle` resolves when half of the answer was seen. */
function startTurn(turn: PacedTurn, wasDisturbed: boolean) {
  const sent: SentTurn = { mark: turn.mark, answer: answerOf(turn), seen: [], wasDisturbed }
  const middle = Promise.withResolvers<void>()
  const ended = (async () => {
    for await (const event of server.client.sessions.send(sessionId, JSON.stringify(turn))) {
      sent.seen.push(event)
      if (sent.seen.length === turn.pieces / 2) middle.resolve()
    }
  })()
  return { sent, reachedMiddle: middle.promise, ended }
}

/** Ends the session; every reader has the whole log, and the log all that anybody was told. */
async function expectInOrder(...sent: SentTurn[]): Promise<string[]> {
  await server.client.sessions.end(sessionId)
  await reader.ended
  const log = await sqliteLog(server.dataDir)(sessionId)
  expectWhole(log)
  expectSameEntries(reader.entries, log)
  return expectTurns(sent, log)
}

const PIECES = 800
const turnOf = (mark: string, pieces = PIECES): PacedTurn => ({ mark, pieces, pieceChars: 20_000, paceMs: 1 })

/** A turn whose log cannot be written is stopped, and all the while the server answers. */
async function expectStopped(): Promise<void> {
  await eventually(
    async () => {
      await server.client.sessions.get(sessionId)
      return server.sandboxProcesses()
    },
    (count) => count === 0,
    60_000,
  )
}

async function sendShort(mark: string): Promise<SentTurn> {
  const { sent, ended } = startTurn(turnOf(mark, 2), false)
  await ended
  return sent
}

describe('a disk that fills up while a turn runs', () => {
  let disk: SmallDisk
  beforeEach(async () => {
    disk = await mountSmallDisk(128)
    const dataDir = join(disk.path, 'data')
    await mkdir(dataDir)
    await startSession({ dataDir })
  })
  afterEach(async () => {
    reader.leave()
    await server.close()
    await disk.remove()
  })

  test('ends it with a typed error, loses nothing that was shown, and the session goes on with space', async () => {
    await disk.fill({ leaveBytes: 6 * 1024 * 1024 }) // Less than the turn needs, more than half of it.
    const turn = startTurn(turnOf('first;', 500), true)
    await expectStopped()
    expect(turn.sent.seen.length).toBeGreaterThan(50)
    await disk.empty()
    await turn.ended
    const next = await sendShort('next;')
    expect(await expectInOrder(turn.sent, next)).toEqual(['internal_error', 'done'])
  })

  test('refuses a message meanwhile or ends it typed, and takes messages again afterwards', async () => {
    await disk.fill()
    const first = startTurn(turnOf('first;'), true)
    const isRefused = first.ended.then(
      () => false,
      (error: unknown) => isAshError(error, 'internal_error'),
    )
    // What the log of the database has room for is taken; the rest of the turn finds none.
    await Promise.race([isRefused, expectStopped()])
    await disk.empty()
    const next = await sendShort('next;')
    const expected = (await isRefused) ? 'lost' : 'internal_error'
    expect(await expectInOrder(first.sent, next)).toEqual([expected, 'done'])
  })
})

describe('a database that another process has locked while a turn runs', () => {
  beforeEach(() => startSession())
  afterEach(async () => {
    reader.leave()
    await server.close()
  })

  test('for less than the server waits: everything else goes on, then the turn does', async () => {
    const turn = startTurn(turnOf('waits;'), false)
    await turn.reachedMiddle
    const lock = await lockDatabase(server.dataDir)
    for (let asked = 0; asked < 5; asked++) {
      await server.client.health()
      await server.client.sessions.messages(sessionId)
    }
    await lock.release()
    await turn.ended
    expect(await expectInOrder(turn.sent)).toEqual(['done'])
  })

  test('for longer: the server answers all the while, the turn ends typed and the session goes on', async () => {
    const turn = startTurn(turnOf('gives up;'), true)
    await turn.reachedMiddle
    const lock = await lockDatabase(server.dataDir)
    await expectStopped()
    await lock.release()
    await turn.ended
    const next = await sendShort('next;')
    expect(await expectInOrder(turn.sent, next)).toEqual(['internal_error', 'done'])
  })

  test('a session that is resumed meanwhile runs, and that is stored as soon as it can be', async () => {
    const { sessions } = server.client
    await sessions.pause(sessionId)
    const lock = await lockDatabase(server.dataDir)
    expect((await sessions.resume(sessionId)).resumed).toBe('warm')
    expect((await sessions.exec(sessionId, { command: 'echo awake' })).stdout).toBe('awake\n')
    const again = sessions.resume(sessionId)
    expect((await server.client.sessions.list()).sessions.map(({ status }) => status)).toEqual(['active'])
    expect((await sessions.get(sessionId)).status).toBe('active')
    expect(await again).toMatchObject({ resumed: 'none', status: 'active' })
    const paused = sessions.pause(sessionId)
    await lock.release()
    expect((await paused).status).toBe('paused')
    const statuses = (await sessions.events(sessionId, { types: ['status'] })).events.slice(-3)
    expect(statuses.map(({ data }) => data)).toEqual([
      { status: 'paused' },
      { status: 'active' },
      { status: 'paused' },
    ])
    // Were the server killed now, its next start would end the turn: so the session is active before it begins.
    await sendShort('wakes;')
    const { events } = await sessions.events(sessionId, { types: ['status', 'turn'] })
    expect(events.slice(-2)).toMatchObject([{ data: { status: 'active' } }, { type: 'turn' }])
  })

  test('for longer, while a sandbox at rest dies: the session can be woken again', async () => {
    const lock = await lockDatabase(server.dataDir)
    for (const { pid, command } of await server.listSandboxProcesses())
      if (command.startsWith('/opt/ash/node')) process.kill(pid, 'SIGKILL')
    await eventually(
      () => server.log(),
      (log) => log.includes('the database did not take a write'),
      30_000,
    )
    await lock.release()
    const next = await sendShort('next;')
    expect(await expectInOrder(next)).toEqual(['done'])
  })
})
