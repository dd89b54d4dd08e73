import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type { AshClient } from '@ash-ai/sdk'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { deployTestAgent } from '../support/conversation.ts'
import { eventually } from '../support/sandbox-processes.ts'
import { type FaultyServer, startFaultyServer } from './support/fault-points.ts'
import { LifecycleSession, loseFolders } from './support/lifecycle-session.ts'
import { buildPacedBridge } from './support/paced-bridge.ts'

// What a server that was killed half way owes to whoever looks afterwards: the log tells what became of the session,
// and what was begun with it is not begun again.

let bridge: Awaited<ReturnType<typeof buildPacedBridge>>
let server: FaultyServer
beforeAll(async () => {
  bridge = await buildPacedBridge()
  server = await startFaultyServer({ ASH_BRIDGE_ENTRY: bridge.path })
  await deployTestAgent(server.client)
  await deployTestAgent(server.client, 'installer', {
    'install.sh': 'echo installed > installed.txt; echo fresh > CLAUDE.md',
  })
})
afterAll(async () => {
  await server.close()
  await bridge[Symbol.asyncDispose]()
})

let session: LifecycleSession
beforeEach(async () => {
  session = await LifecycleSession.create(server, 'zebra')
})

/** The server dies at the point while the work is done, and comes back. */
async function dieAt(point: string, work: (client: AshClient) => Promise<unknown>): Promise<void> {
  await server.kill()
  await server.arm(point)
  await work(server.client).catch(() => {}) // Its server dies.
  await server.died()
  await server.revive()
}

const statuses = async () =>
  (await server.client.sessions.events(session.id, { types: ['status'] })).events.map(({ data }) => data)

test('a rollback that is stored is told in the log, also where the server dies then', async () => {
  const checkpointId = session.firstCheckpoint
  await dieAt('rollback-stored', ({ sessions }) => sessions.rollback(session.id, { checkpointId }))
  expect(await server.client.sessions.get(session.id)).toMatchObject({ status: 'paused', checkpointId })
  expect((await statuses()).at(-1)).toMatchObject({ status: 'paused', rolledBackTo: { checkpointId } })
})

test('files that were restored when the server died are not set up again', async () => {
  const { id } = await server.client.sessions.create({ agent: 'installer' })
  await session.run('echo mine > CLAUDE.md; rm installed.txt', id)
  await server.client.sessions.stop(id)
  const saved = await session.tree(id)
  await server.kill()
  await loseFolders(server, id)
  await server.arm('restore-workspace')
  await server.client.sessions.resume(id).catch(() => {}) // Its server dies.
  await server.died()
  await server.revive()
  await server.client.sessions.resume(id)
  expect(await session.tree(id)).toEqual(saved)
})

test('a session whose server died while it ended it has ended: nothing of it is left', async () => {
  await server.client.sessions.stop(session.id)
  await server.kill()
  // So that ending it waits for a checkpoint, in the middle of which the server dies.
  await server.arm('checkpoint-manifest')
  await session.run(`seq -f '${session.id} %.0f' 1 2000000 > large`)
  const saving = server.client.checkpoints.create(session.id).catch(() => {})
  const ending = server.client.sessions.end(session.id).catch(() => {})
  await Promise.all([saving, ending, server.died()])
  await server.revive()
  expect(await server.client.sessions.get(session.id)).toMatchObject({ status: 'ended' })
  expect((await server.client.checkpoints.list(session.id)).checkpoints).toEqual([])
  expect((await statuses()).at(-1)).toEqual({ status: 'ended' })
  expect(hostUser(session.id)).toEqual({ host_uid: null })
})

test('a fork that was never used and whose server died while it ended it gives its user back', async () => {
  const fork = await server.client.sessions.fork(session.id)
  // Killed in the moment in which it is stored that it has ended.
  const following = (async () => {
    await eventually(
      () => statusInDatabase(fork.id),
      (status) => status === 'ended',
    )
    await server.kill()
  })()
  await Promise.all([server.client.sessions.end(fork.id).catch(() => {}), following])
  await server.start()
  expect((await server.client.checkpoints.list(fork.id)).checkpoints).toEqual([])
  expect(hostUser(fork.id)).toEqual({ host_uid: null })
})

function query<Row>(sql: string, id: string): Row | undefined {
  const db = new DatabaseSync(join(server.dataDir, 'ash.db'), { readOnly: true })
  try {
    return db.prepare(sql).get(id) as Row | undefined
  } finally {
    db.close()
  }
}

const hostUser = (id: string) =>
  query<{ host_uid: number | null }>('select host_uid from sessions where id = ?', id)
const statusInDatabase = (id: string) =>
  query<{ status: string }>('select status from sessions where id = ?', id)?.status
