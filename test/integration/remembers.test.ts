import { lstat, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { PostgresServer } from '@ash-ai/server/testing'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { deployTestAgent } from './support/conversation.ts'
import { type MovableServer, startMovableServer } from './support/movable-server.ts'
import { OutsideApi, RememberingSession } from './support/remembering.ts'

const IDLE_TIMEOUT_MS = 2_000

let api: OutsideApi
let host: MovableServer
let session: RememberingSession
beforeAll(async () => {
  api = await OutsideApi.start()
})
afterAll(() => api.close())

const sessions = () => host.server.client.sessions
const resume = async () => (await sessions().resume(session.id)).resumed

async function start(): Promise<void> {
  session = await RememberingSession.create(host.server, api)
  await session.expectRemembers('first')
}

async function restart(...how: Parameters<MovableServer['restart']>): Promise<void> {
  await host.restart(...how)
  expect(await sessions().get(session.id)).toMatchObject({ status: 'paused', sandboxState: 'cold' })
}

const removeFolders = () => rm(join(host.dataDir(), 'sandboxes'), { recursive: true })

async function moveData(): Promise<void> {
  const before = host.dataDir()
  host.env.ASH_DATA_DIR = `${before}-elsewhere`
  await rename(before, host.dataDir())
}

describe('the agent remembers everything', () => {
  // A server each: whatever becomes of one is not the next one's.
  beforeEach(async () => {
    host = await startMovableServer()
    await start()
  })
  afterEach(async () => {
    await sessions()
      .end(session.id)
      .finally(() => host.server.close())
  })

  test('when it was stopped and resumed, three times', async () => {
    for (const turn of ['second', 'third', 'fourth']) {
      expect(await sessions().stop(session.id)).toMatchObject({ status: 'paused', sandboxState: 'cold' })
      expect(await host.server.sandboxProcesses()).toBe(0)
      expect(await resume()).toBe('cold_local')
      await session.expectRemembers(turn)
    }
  })

  test('when it was paused, and went on in the same sandbox', async () => {
    for (const turn of ['second', 'third']) {
      expect(await sessions().pause(session.id)).toMatchObject({ status: 'paused', sandboxState: 'waiting' })
      expect(await resume()).toBe('warm')
      await session.expectRemembers(turn)
    }
  })

  test('when the server was killed the moment a turn was done, three times', async () => {
    for (const turn of ['second', 'third', 'fourth']) {
      await restart('kill')
      // The message itself wakes it.
      await session.expectRemembers(turn)
    }
  })

  test('when it did nothing for so long that it lost its sandbox', async () => {
    host.env.ASH_IDLE_TIMEOUT_MS = String(IDLE_TIMEOUT_MS)
    await restart('stop')
    delete host.env.ASH_IDLE_TIMEOUT_MS
    await session.expectRemembers('second')
    await expect.poll(() => host.server.sandboxProcesses(), { timeout: 5 * IDLE_TIMEOUT_MS }).toBe(0)
    expect(await sessions().get(session.id)).toMatchObject({ status: 'paused', sandboxState: 'cold' })
    await session.expectRemembers('third')
  })

  test('when the data directory is somewhere else', async () => {
    const before = host.dataDir()
    await restart('stop', moveData)
    expect(await resume()).toBe('cold_local')
    await session.expectRemembers('second')
    await restart('kill')
    await session.expectRemembers('third')
    await expect(lstat(before)).rejects.toMatchObject({ code: 'ENOENT' })
  })

  test('when nothing is left of its folders but the checkpoint', async () => {
    for (const turn of ['second', 'third']) {
      await restart('stop', removeFolders)
      expect(await resume()).toBe('cold_local')
      await session.expectRemembers(turn)
    }
  })

  test('in forks of each turn, made the moment it was done', async () => {
    const forks = [await session.fork()]
    await session.expectRemembers('second')
    forks.push(await session.fork(), await session.forkOfTurn())
    for (const fork of forks) {
      await fork.expectRemembers('own')
      await sessions().end(fork.id)
    }
    await session.expectRemembers('third')
  })
})

test('a fork may do what its parent may do now, and not what it could before', async () => {
  host = await startMovableServer()
  try {
    await deployTestAgent(host.server.client)
    const { id } = await sessions().create({ agent: 'zebra', network: ['example.com'] })
    const fork = await sessions().fork(id)
    expect(fork.network).toEqual(['example.com'])
    for (const parent of [id, fork.id]) {
      await sessions().patch(parent, { network: 'none', autoResume: false })
      expect(await sessions().fork(parent)).toMatchObject({ network: 'none', autoResume: false })
    }
  } finally {
    await host.server.close()
  }
})

test('on Postgres the agent remembers everything: stopped, killed, moved and without its folders', async () => {
  const postgres = await PostgresServer.start()
  const { url, drop } = await postgres.createDatabase('remembers')
  host = await startMovableServer({ ASH_DATABASE_URL: url })
  try {
    await start()
    await sessions().stop(session.id)
    await session.expectRemembers('second')
    const fork = await session.fork()
    await restart('kill')
    await session.expectRemembers('third')
    await restart('stop', async () => {
      await removeFolders()
      await moveData()
    })
    await session.expectRemembers('fourth')
    await fork.expectRemembers('own')
  } finally {
    await host.server.close()
    await drop()
  }
})
