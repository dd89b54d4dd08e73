import { randomUUID } from 'node:crypto'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { isAshError } from '@ash-ai/sdk'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { deployTestAgent } from '../support/conversation.ts'
import { startTestServer, type TestServer } from '../support/test-server.ts'
import { listLeftovers, NO_LEFTOVERS } from './support/leftovers.ts'
import { Storm } from './support/lifecycle-storm.ts'
import { buildPacedBridge } from './support/paced-bridge.ts'
import { FAULT_SEED, Random, withSeed } from './support/random.ts'
import { lastingPort, Restarts } from './support/restarts.ts'

const STORM_MS = 4_000
const CLIENTS = 8
const KILLS = 3
const KILL_EVERY_MS = 2_000

let bridge: Awaited<ReturnType<typeof buildPacedBridge>>
beforeAll(async () => {
  bridge = await buildPacedBridge()
})
afterAll(() => bridge[Symbol.asyncDispose]())

async function start(env: Record<string, string> = {}): Promise<TestServer> {
  const server = await startTestServer({ env: { ASH_BRIDGE_ENTRY: bridge.path, ...env } })
  await deployTestAgent(server.client)
  return server
}

async function expectNothingLeft(server: TestServer): Promise<void> {
  for (const { id } of await listOpen(server)) await server.client.sessions.end(id)
  expect((await server.client.gc()).kept).toEqual({ blobs: 0, bytes: 0 })
  await expect.poll(() => listLeftovers(server, [])).toEqual(NO_LEFTOVERS)
}

async function listOpen({ client }: TestServer) {
  const lists = (['active', 'paused', 'error', 'starting'] as const).map((status) =>
    client.sessions.list({ status }),
  )
  return (await Promise.all(lists)).flatMap(({ sessions }) => sessions)
}

describe.each([1, 3])('many clients, more sessions than the %s sandboxes allowed', (max) => {
  test('nothing acknowledged is lost, every refusal is typed, and there is never one sandbox more', () =>
    withSeed(async () => {
      // Those that do nothing for a moment are paused as well.
      const server = await start({ ASH_MAX_SANDBOXES: String(max), ASH_IDLE_TIMEOUT_MS: '300' })
      try {
        const random = new Random(FAULT_SEED)
        const storm = await Storm.create(server, max + 3)
        const untilMs = performance.now() + STORM_MS
        const clients = Array.from({ length: CLIENTS }, (_, index) =>
          storm.runClient(`c${index}`, random.fork(), untilMs),
        )
        const most = watchSandboxes(server, untilMs)
        await Promise.all(clients)
        expect(await most).toBeLessThanOrEqual(max)
        expect(await most).toBeGreaterThan(0)
        await storm.expectFiles()
        await expectNothingLeft(server)
      } finally {
        await server.close()
      }
    }))
})

test('nothing acknowledged is lost either where the server is killed again and again meanwhile', () =>
  withSeed(async () => {
    const random = new Random(FAULT_SEED)
    const port = String(await lastingPort(random))
    const server = await start({ ASH_MAX_SANDBOXES: '2', ASH_PORT: port })
    try {
      const restarts = new Restarts(server, random.fork())
      const storm = await Storm.create(server, 4, restarts)
      const untilMs = performance.now() + KILLS * KILL_EVERY_MS
      const clients = Array.from({ length: CLIENTS }, (_, index) =>
        storm.runClient(`c${index}`, random.fork(), untilMs),
      )
      const kills = (async () => {
        while (performance.now() < untilMs) {
          await sleep(random.below(KILL_EVERY_MS)) // When it dies is what the seed decides.
          await restarts.kill()
        }
      })()
      await Promise.all([...clients, kills])
      await storm.expectFiles()
      await expectNothingLeft(server)
    } finally {
      await server.close()
    }
  }))

/** The most that were alive at one moment: whoever is in two lists, one after the other, lived between them. */
async function watchSandboxes(server: TestServer, untilMs: number): Promise<number> {
  const list = async () => {
    const processes = await server.listSandboxProcesses()
    return new Set(
      processes.filter(({ command }) => command.includes('/opt/ash/bridge')).map(({ uid }) => uid),
    )
  }
  let most = 0
  for (let before = await list(); performance.now() < untilMs; ) {
    const now = await list()
    most = Math.max(most, [...now].filter((uid) => before.has(uid)).length)
    before = now
    const { sandboxes } = await server.client.health()
    most = Math.max(most, sandboxes.live)
  }
  return most
}

describe('on one session', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await start()
  })
  afterEach(() => expectNothingLeft(server))
  afterAll(() => server.close())

  const run = (id: string, command: string) => server.client.sessions.exec(id, { command })
  const create = async () => (await server.client.sessions.create({ agent: 'zebra' })).id

  test('a storm of pauses, stops, resumes and commands leaves it usable, and its end is one', () =>
    withSeed(async () => {
      const { client } = server
      const random = new Random(FAULT_SEED)
      const id = await create()
      const acts = [
        () => client.sessions.pause(id),
        () => client.sessions.stop(id),
        () => client.sessions.resume(id),
        () => client.checkpoints.create(id),
        () => run(id, 'echo line >> lines'),
      ]
      const shuffled = Array.from({ length: 60 }, () => acts[random.below(acts.length)]?.())
      const outcomes = await Promise.allSettled(shuffled)
      for (const outcome of outcomes) expectDoneOr(outcome, ['session_conflict', 'turn_in_progress'])
      await run(id, 'echo line >> lines')
      const lines = outcomes.filter(({ status, ...rest }) => status === 'fulfilled' && isExec(rest))
      expect((await run(id, 'wc -l < lines')).stdout.trim()).toBe(String(lines.length + 1))

      const ends = Array.from({ length: 20 }, (_, index) =>
        index % 2 === 0 ? client.sessions.end(id) : acts[random.below(acts.length)]?.(),
      )
      for (const [index, outcome] of (await Promise.allSettled(ends)).entries()) {
        if (index % 2 === 0) expect(outcome.status).toBe('fulfilled')
        else expectDoneOr(outcome, ['session_ended', 'session_gone', 'session_conflict', 'sandbox_died'])
      }
      const { events } = await client.sessions.events(id, { types: ['status'] })
      const isEnd = ({ data }: { data: unknown }) => (data as { status: string }).status === 'ended'
      expect(events.filter(isEnd)).toHaveLength(1)
      expect(events.findIndex(isEnd)).toBe(events.length - 1)
    }))

  test.each(['checkpoint', 'pause'])('ending it in the middle of a %s takes both away', async (name) => {
    const { client } = server
    const id = await create()
    await run(id, 'mkdir many; for n in $(seq 2000); do echo $n > many/$n; done; seq 3000000 > large')
    const save = name === 'pause' ? client.sessions.pause(id) : client.checkpoints.create(id)
    const [saved, ended] = await Promise.allSettled([save, client.sessions.end(id)])
    expect(ended).toMatchObject({ status: 'fulfilled', value: { status: 'ended' } })
    expectDoneOr(saved, ['session_ended', 'session_conflict'])
    expect((await client.checkpoints.list(id)).checkpoints).toEqual([])
  })

  test('a file written during a rollback is in the workspace or in what the rollback saved', () =>
    withSeed(async () => {
      const { client } = server
      const random = new Random(FAULT_SEED)
      const id = await create()
      await run(id, 'echo base > base')
      const { id: checkpointId } = await client.checkpoints.create(id)
      for (let round = 0; round < 6; round++) {
        const paths = Array.from({ length: 6 }, (_, index) => `file-${round}-${index}`)
        const write = async (path: string) => (await client.files.write(id, path, path)).path
        const early = paths.splice(0, random.below(paths.length))
        if (random.chance(0.5)) await client.sessions.resume(id)
        const writes = early.map(write)
        const rollback = client.sessions.rollback(id, { checkpointId })
        writes.push(...paths.map(write))
        expectDoneOr((await Promise.allSettled([rollback]))[0], ['turn_in_progress'])
        const { checkpoints } = await client.checkpoints.list(id)
        const saved = checkpoints.find(({ reason }) => reason === 'rollback')
        for (const path of await Promise.all(writes)) {
          const now = await readIfThere(id, path)
          const left = saved && now === undefined ? await readIfThere(id, path, saved.id) : now
          expect(left).toBe(path)
        }
        expect(await readIfThere(id, 'base')).toBe('base\n')
      }
    }))

  const readIfThere = (id: string, path: string, checkpointId?: string) =>
    server.client.files
      .readText(id, path, checkpointId === undefined ? {} : { checkpointId })
      .catch((error: unknown) => {
        if (!isAshError(error, 'file_not_found')) throw error
      })

  test('folders and files swapped for links to the host bring nothing of it into a checkpoint', async () => {
    const { client } = server
    const [secret, own] = [randomUUID(), randomUUID()]
    const outside = await mkdtemp(join(tmpdir(), 'ash-outside-'))
    try {
      await writeFile(join(outside, 'file'), secret)
      const id = await create()
      await run(
        id,
        `echo ${own} > own
        (while :; do rm -rf swap one; mkdir swap; echo ${own} > swap/file; echo ${own} > one
          rm -rf swap one; ln -s ${outside} swap; ln -s ${outside}/file one; done) > /dev/null 2>&1 &`,
      )
      for (let round = 0; round < 8; round++) {
        await client.checkpoints.create(id)
        // Into the folder where it is one at this moment; through the link never.
        await client.files.write(id, 'swap/planted', own).catch((error: unknown) => {
          if (!isAshError(error)) throw error
        })
        const read = await client.files.readText(id, 'swap/file').catch(() => '')
        expect(read).not.toContain(secret)
      }
      await client.sessions.stop(id)
      expect(await readdir(outside)).toEqual(['file'])
      const stored = await readStored(server)
      expect(stored.some((blob) => blob.includes(own))).toBe(true)
      expect(stored.some((blob) => blob.includes(secret))).toBe(false)
    } finally {
      await rm(outside, { recursive: true })
    }
  })
})

function expectDoneOr(outcome: PromiseSettledResult<unknown>, codes: string[]): void {
  if (outcome.status === 'fulfilled') return
  if (!isAshError(outcome.reason)) throw outcome.reason
  expect(codes).toContain(outcome.reason.code)
}

const isExec = (outcome: object) =>
  'value' in outcome &&
  typeof outcome.value === 'object' &&
  outcome.value !== null &&
  'stdout' in outcome.value

/** Everything in the store, blob by blob. */
async function readStored({ dataDir }: TestServer): Promise<Buffer[]> {
  const root = join(dataDir, 'snapshots')
  const entries = await readdir(root, { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile())
  return Promise.all(files.map(({ parentPath, name }) => readFile(join(parentPath, name))))
}
