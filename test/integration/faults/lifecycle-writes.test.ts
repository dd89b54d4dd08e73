import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { deployTestAgent } from '../support/conversation.ts'
import { type FaultyServer, startFaultyServer } from './support/fault-points.ts'
import { loseFolders } from './support/lifecycle-session.ts'
import { buildPacedBridge } from './support/paced-bridge.ts'

let bridge: Awaited<ReturnType<typeof buildPacedBridge>>
let server: FaultyServer
beforeAll(async () => {
  bridge = await buildPacedBridge()
  server = await startFaultyServer({ ASH_BRIDGE_ENTRY: bridge.path })
  await deployTestAgent(server.client)
})
afterAll(async () => {
  await server.close()
  await bridge[Symbol.asyncDispose]()
})

const run = async (id: string, command: string) => (await server.client.sessions.exec(id, { command })).stdout

test('a session goes back to the oldest checkpoint that it keeps', async () => {
  const { client } = server
  const { id } = await client.sessions.create({ agent: 'zebra', checkpoints: { every: 'pause', keep: 2 } })
  await run(id, 'echo 1 > file')
  const first = await client.checkpoints.create(id)
  await run(id, 'echo 2 > file')
  await client.checkpoints.create(id)
  await client.sessions.rollback(id, { checkpointId: first.id })
  expect(await run(id, 'cat file')).toBe('1\n')
  expect((await client.checkpoints.list(id)).checkpoints.map(({ id }) => id)).toContain(first.id)
})

test('files that are written while a session stops are saved, too', async () => {
  const { client } = server
  const { id } = await client.sessions.create({ agent: 'zebra' })
  await run(id, `mkdir many; for n in $(seq 8000); do echo ${id} $n > many/$n; done`)
  const blobs = async () => (await readdir(join(server.dataDir, 'snapshots'), { recursive: true })).length
  const before = await blobs()
  const stopping = client.sessions.stop(id)
  await expect.poll(blobs, { interval: 5 }).toBeGreaterThan(before + 100)
  await client.files.write(id, 'late', 'kept')
  expect(await client.sessions.get(id)).toMatchObject({ status: 'active' })
  await stopping
  await server.stop()
  await loseFolders(server, id)
  await server.start()
  expect(await server.client.files.readText(id, 'late')).toBe('kept')
})
