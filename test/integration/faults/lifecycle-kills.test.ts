import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { deployTestAgent } from '../support/conversation.ts'
import { tar } from '../support/tar.ts'
import { type FaultyServer, startFaultyServer } from './support/fault-points.ts'
import { listLeftovers, NO_LEFTOVERS } from './support/leftovers.ts'
import { expectOneOf, LifecycleSession, loseFolders } from './support/lifecycle-session.ts'
import { buildPacedBridge } from './support/paced-bridge.ts'
import type { SessionTree } from './support/session-tree.ts'

// Wherever the server dies while it saves, restores or moves the files of a session: what was acknowledged is there,
// whole and never mixed with something older; nothing else is left; and what was interrupted can be done again.

interface Operation {
  points: string[]
  env?: Record<string, string>
  /** Before the server is killed and started with the fault. */
  prepare?: (session: LifecycleSession) => Promise<unknown>
  /** While no server runs. */
  lose?: boolean
  /** Says in `allowed` what the session may have from there on, before and after each acknowledgement. */
  run: (session: LifecycleSession) => Promise<unknown>
}

const CHECKPOINT_POINTS = [
  'checkpoint-blobs',
  'checkpoint-blobs:3',
  'checkpoint-scanned',
  'checkpoint-manifest',
  'checkpoint-recorded',
  'checkpoint-committed',
]
const RESTORE_POINTS = [
  'restore-cleared',
  'restore-filled',
  'restore-home',
  'restore-workspace',
  'restore-done',
  'restore-placed',
]

const ARCHIVE = new Uint8Array(
  tar({ name: 'up/', type: '5', mode: 0o755 }, { name: 'up/loaded.txt', content: 'from an archive' }),
)

const OPERATIONS: Record<string, Operation> = {
  'the checkpoint of a turn': { points: CHECKPOINT_POINTS, run: (session) => session.turn() },
  'a pause': {
    points: ['pause-saved', 'pause-stored', 'pause-stopped'],
    run: async ({ client, id }) => {
      await client.sessions.resume(id)
      await client.sessions.pause(id)
    },
  },
  'a stop': {
    points: ['checkpoint-recorded', 'pause-stored', 'pause-stopped'],
    run: async ({ client, id }) => {
      await client.sessions.resume(id)
      await client.sessions.stop(id)
    },
  },
  'an eviction': {
    env: { ASH_MAX_SANDBOXES: '1' },
    points: ['checkpoint-scanned', 'pause-stored'],
    run: async ({ client, id }) => {
      await client.sessions.resume(id)
      const other = await client.sessions.create({ agent: 'zebra' })
      await client.sessions.end(other.id)
    },
  },
  'its own orderly stop': {
    points: ['checkpoint-manifest', 'checkpoint-recorded'],
    run: async ({ client, server, id }) => {
      await client.sessions.resume(id)
      if ((await server.stop()) === 0) await server.start()
    },
  },
  'a resume without its folders': {
    points: RESTORE_POINTS,
    prepare: ({ client, id }) => client.sessions.stop(id),
    lose: true,
    run: ({ client, id }) => client.sessions.resume(id),
  },
  'a fork and its first use': {
    points: ['checkpoint-recorded', 'restore-filled', 'restore-placed'],
    run: async (session) => {
      const fork = await session.client.sessions.fork(session.id)
      session.others.set(fork.id, session.second)
      await session.run('true', fork.id)
    },
  },
  'a rollback and the first use after it': {
    points: ['checkpoint-recorded', 'rollback-saved', 'rollback-stored', 'restore-cleared'],
    run: async (session) => {
      session.allowed = [...session.allowed, session.first]
      await session.client.sessions.rollback(session.id, { checkpointId: session.firstCheckpoint })
      session.allowed = [session.first]
      await session.run('true')
    },
  },
  'the upload of a workspace': {
    points: ['checkpoint-recorded:2', 'checkpoint-recorded', 'restore-home'],
    run: async (session) => {
      const after = withArchive(session.second)
      session.allowed = [...session.allowed, after]
      await session.client.workspace.upload(session.id, ARCHIVE)
      session.allowed = [after]
      await session.run('true')
    },
  },
}

/** The tree with the archive over it. */
function withArchive(tree: SessionTree): SessionTree {
  const sha256 = 'c77123d7330ea6ebc4798df2153b3b9d03434ae73822961a43b3cec48ebe1192'
  const entries = { 'workspace/up': 'folder 755', 'workspace/up/loaded.txt': `file 644 0 15 ${sha256}` }
  return Object.fromEntries(Object.entries({ ...tree, ...entries }).sort(([a], [b]) => (a < b ? -1 : 1)))
}

let bridge: Awaited<ReturnType<typeof buildPacedBridge>>
beforeAll(async () => {
  bridge = await buildPacedBridge()
})
afterAll(() => bridge[Symbol.asyncDispose]())

describe('the server dies again and again, during', () => {
  test.each(Object.entries(OPERATIONS))('%s', async (_, { points, env = {}, ...operation }) => {
    await using server = await startFaultyServer({ ASH_BRIDGE_ENTRY: bridge.path, ...env })
    await deployTestAgent(server.client)
    const session = await LifecycleSession.create(server, 'zebra')
    await operation.prepare?.(session)
    const known = await knownCheckpoints(session)
    await server.kill()
    let before = 'the start'
    for (const point of points) {
      if (operation.lose) await loseFolders(server, session.id)
      await server.arm(point)
      await expectRecovered(session, `after ${before}`)
      await operation.run(session).catch(() => {}) // Its server dies; some die after they have answered.
      await server.died()
      before = point
    }
    await server.revive()
    await expectRecovered(session, `after ${before}`)
    await server.client.gc()
    await session.expectCheckpoints(known, [session.first, session.second, ...session.allowed])
    await expectFiles(session)
    await operation.run(session)
    await expectFiles(session)
    await expectNothingKept(server)
  })
})

/** What is known of the checkpoints so far: the first, and the one that was made when the session was stopped. */
async function knownCheckpoints(session: LifecycleSession): Promise<Map<string, SessionTree>> {
  const { status, checkpointId = '' } = await session.client.sessions.get(session.id)
  const known = new Map([[session.firstCheckpoint, session.first]])
  return status === 'paused' ? known.set(checkpointId, session.second) : known
}

/** Without passing any point at which a server could die. */
async function expectRecovered(session: LifecycleSession, when: string): Promise<void> {
  const { client, server } = session
  const { sessions } = await client.sessions.list()
  expect(new Set(sessions.map(({ status }) => status)), when).toEqual(new Set(['paused']))
  const ids = sessions.map(({ id }) => id)
  // The last processes may not have been waited for yet.
  await expect.poll(() => listLeftovers(server, ids), { message: when }).toEqual(NO_LEFTOVERS)
  for (const id of ids) await session.expectWholeLog(id, when)
  const { source } = await client.files.list(session.id)
  if (source === 'live') expectOneOf(await session.tree(), session.allowed, when)
}

/** Looked at while they are in use. */
async function expectFiles(session: LifecycleSession): Promise<void> {
  await session.client.sessions.resume(session.id)
  expectOneOf(await session.tree(), session.allowed, 'in use')
  for (const [id, tree] of session.others) {
    await session.client.sessions.resume(id)
    expectOneOf(await session.tree(id), [tree], 'in use')
  }
}

async function expectNothingKept(server: FaultyServer): Promise<void> {
  const { sessions } = await server.client.sessions.list()
  for (const { id } of sessions) await server.client.sessions.end(id)
  expect((await server.client.gc()).kept).toEqual({ blobs: 0, bytes: 0 })
  await expect.poll(() => listLeftovers(server, [])).toEqual(NO_LEFTOVERS)
}
