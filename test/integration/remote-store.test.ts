import { createHash } from 'node:crypto'
import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { S3_TEST_KEY, useS3 } from '@ash-ai/sandbox/testing'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { bucketSettings, findObject } from './support/bucket.ts'
import { deployTestAgent } from './support/conversation.ts'
import { type MovableServer, startMovableServer } from './support/movable-server.ts'
import { OutsideApi, RememberingSession } from './support/remembering.ts'
import { runServer } from './support/run-process.ts'

const UPLOAD_TIMEOUT_MS = 40_000

const s3 = useS3()
let host: MovableServer
let folder: string
let folders = 0
beforeEach(async () => {
  folder = `server-${++folders}`
  host = await startMovableServer(bucketSettings(s3, folder))
})
afterEach(() => host.server.close())

const sessions = () => host.server.client.sessions
const checkpoints = async (id: string) => (await host.server.client.checkpoints.list(id)).checkpoints
const areUploaded = async (id: string) => (await checkpoints(id)).every(({ isUploaded }) => isUploaded)
const uploaded = (id: string) => expect.poll(() => areUploaded(id), { timeout: UPLOAD_TIMEOUT_MS }).toBe(true)
const write = (id: string, name: string, text: string) =>
  sessions().exec(id, { command: `printf '${text}' > ${name}` })
const read = async (id: string, name: string) =>
  (await sessions().exec(id, { command: `cat ${name}` })).stdout

const isUp = () =>
  host.server.client.health().then(
    () => true,
    () => false,
  )

/** As another machine would find it: the database is there, and no file of any session. */
const loseFiles = async () => {
  for (const name of ['sandboxes', 'snapshots']) await rm(join(host.dataDir(), name), { recursive: true })
}

/** A session with a file of its own, all of it uploaded. */
async function makeSession(): Promise<string> {
  await deployTestAgent(host.server.client)
  const { id } = await sessions().create({ agent: 'zebra' })
  await write(id, 'precious', 'precious')
  await host.server.client.checkpoints.create(id)
  await uploaded(id)
  return id
}

describe('from the bucket alone', () => {
  let api: OutsideApi
  beforeAll(async () => {
    api = await OutsideApi.start()
  })
  afterAll(() => api.close())

  test('the agent remembers everything, three times, and so does a fork', async () => {
    const session = await RememberingSession.create(host.server, api)
    await session.expectRemembers('first')
    const fork = await session.fork()
    await uploaded(fork.id)
    for (const turn of ['second', 'third', 'fourth']) {
      await sessions().stop(session.id)
      await uploaded(session.id)
      await host.restart('stop', loseFiles)
      expect(await sessions().resume(session.id)).toMatchObject({ resumed: 'cold_remote' })
      await session.expectRemembers(turn)
    }
    expect(await sessions().resume(fork.id)).toMatchObject({ resumed: 'cold_remote' })
    await fork.expectRemembers('own')
  })

  test('files, log and archive of a session are served before it is woken', async () => {
    const id = await makeSession()
    await host.restart('stop', loseFiles)
    const { client } = host.server
    expect((await client.sessions.events(id, { types: ['checkpoint'] })).events).not.toEqual([])
    expect((await client.files.list(id)).files.map(({ path }) => path)).toEqual(['CLAUDE.md', 'precious'])
    expect(await client.files.readText(id, 'precious')).toBe('precious')
    const archive = Buffer.concat(await Array.fromAsync(await client.workspace.download(id)))
    expect(gunzipSync(archive).toString()).toContain('precious')
    expect(await client.sessions.get(id)).toMatchObject({ status: 'paused', sandboxState: 'cold' })
  })
})

describe('an object of a checkpoint', () => {
  const hash = createHash('sha256').update('precious').digest('hex')

  test('that is damaged on this host is fetched again', async () => {
    const id = await makeSession()
    await host.restart('stop', async () => {
      await rm(join(host.dataDir(), 'sandboxes'), { recursive: true })
      const blobs = await readdir(join(host.dataDir(), 'snapshots'), { recursive: true, withFileTypes: true })
      const [blob] = blobs.filter(({ name }) => name === hash)
      await writeFile(join(blob?.parentPath ?? '', hash), 'specious')
    })
    expect(await read(id, 'precious')).toBe('precious')
  })

  test.each([
    ['that was changed', (object: string) => writeFile(object, 'specious')],
    ['that is gone', (object: string) => rm(object)],
  ])('%s is told, and an earlier checkpoint still works', async (_, damage) => {
    await deployTestAgent(host.server.client)
    const { id } = await sessions().create({ agent: 'zebra' })
    const before = await host.server.client.checkpoints.create(id)
    await write(id, 'precious', 'precious')
    await host.server.client.checkpoints.create(id)
    await uploaded(id)
    await host.restart('stop', loseFiles)
    const object = await findObject(s3, folder, hash)
    const bytes = await readFile(object)
    await damage(object)
    const damaged = { code: 'checkpoint_damaged', statusCode: 500 }
    await expect(sessions().resume(id)).rejects.toMatchObject(damaged)
    await expect(sessions().exec(id, { command: 'true' })).rejects.toMatchObject(damaged)
    expect(await sessions().get(id)).toMatchObject({ status: 'error', error: { code: damaged.code } })
    await sessions().rollback(id, { checkpointId: before.id })
    expect(await read(id, 'CLAUDE.md')).toContain('Zebra')
    const [newest] = await checkpoints(id)
    await writeFile(object, bytes)
    await sessions().rollback(id, { checkpointId: newest?.id ?? '' })
    expect(await read(id, 'precious')).toBe('precious')
  })
})

describe('while the bucket is down', () => {
  test('a session that is only there says so, and works when it is up again', async () => {
    const id = await makeSession()
    await host.restart('stop', loseFiles)
    await s3.server().stop()
    try {
      const unavailable = { code: 'store_unavailable', statusCode: 503 }
      await expect(sessions().resume(id)).rejects.toMatchObject(unavailable)
      await expect(host.server.client.files.list(id)).rejects.toMatchObject(unavailable)
    } finally {
      await s3.server().start()
    }
    expect(await sessions().resume(id)).toMatchObject({ resumed: 'cold_remote' })
    expect(await read(id, 'precious')).toBe('precious')
  })

  test('sessions work, and their checkpoints follow when it is up again', async () => {
    const id = await makeSession()
    await s3.server().stop()
    try {
      await write(id, 'precious', 'newer')
      await sessions().stop(id)
      expect(await read(id, 'precious')).toBe('newer')
      expect(await areUploaded(id)).toBe(false)
    } finally {
      await s3.server().start()
    }
    await uploaded(id)
    await sessions().stop(id)
    await uploaded(id)
    await host.restart('stop', loseFiles)
    expect(await read(id, 'precious')).toBe('newer')
  })

  test('a server is stopped, killed and started, and what it has to upload follows', async () => {
    const id = await makeSession()
    await s3.server().stop()
    try {
      for (const end of ['stop', 'kill'] as const) {
        await write(id, 'precious', end)
        await sessions().stop(id)
        await host.restart(end)
        expect(await read(id, 'precious')).toBe(end)
      }
      expect(await areUploaded(id)).toBe(false)
    } finally {
      await s3.server().start()
    }
    await uploaded(id)
    await host.restart('stop', loseFiles)
    expect(await read(id, 'precious')).toBe('kill')
  })
})

test.each(['upload-blobs', 'upload-manifest', 'upload-recorded'])(
  'a server that is killed at %s uploads after its next start',
  async (point) => {
    const id = await makeSession()
    await sessions().stop(id)
    await uploaded(id)
    host.env.ASH_FAULT_POINT = point
    await host.restart('stop')
    delete host.env.ASH_FAULT_POINT
    await write(id, 'precious', 'newer')
    // Its answer may be lost with the server.
    await host.server.client.checkpoints.create(id).catch(() => {})
    await expect.poll(isUp, { timeout: UPLOAD_TIMEOUT_MS }).toBe(false)
    await host.restart('kill')
    await uploaded(id)
    await host.restart('stop', loseFiles)
    expect(await read(id, 'precious')).toBe('newer')
  },
)

test('the keys of the bucket are in no sandbox and in no log', async () => {
  const id = await makeSession()
  const { stdout } = await sessions().exec(id, { command: 'env; cat /proc/[0-9]*/environ 2> /dev/null' })
  expect(stdout).toContain('ANTHROPIC_API_KEY')
  expect(stdout).not.toContain(S3_TEST_KEY)
  expect(host.server.log()).not.toContain(S3_TEST_KEY)
})

test('a server that is stopped uploads what it saved', async () => {
  const id = await makeSession()
  await sessions().exec(id, { command: 'head -c 20000000 /dev/urandom > random; sha256sum random > sum' })
  await host.restart('stop', loseFiles)
  expect(await areUploaded(id)).toBe(true)
  expect(await sessions().resume(id)).toMatchObject({ resumed: 'cold_remote' })
  expect(await sessions().exec(id, { command: 'sha256sum -c sum' })).toMatchObject({ exitCode: 0 })
})

test('a checkpoint that was lost before its upload does not hold up the later ones', async () => {
  const id = await makeSession()
  const [before] = await checkpoints(id)
  await s3.server().stop()
  try {
    await write(id, 'precious', 'lost')
    await host.restart('stop', loseFiles)
  } finally {
    await s3.server().start()
  }
  await expect(sessions().resume(id)).rejects.toMatchObject({ code: 'checkpoint_damaged' })
  await sessions().rollback(id, { checkpointId: before?.id ?? '' })
  await write(id, 'precious', 'newer')
  const { id: newest } = await host.server.client.checkpoints.create(id)
  const isThere = async () => (await checkpoints(id)).find((found) => found.id === newest)?.isUploaded
  await expect.poll(isThere, { timeout: UPLOAD_TIMEOUT_MS }).toBe(true)
  await host.restart('stop', loseFiles)
  expect(await read(id, 'precious')).toBe('newer')
})

test('another database at the same place is refused at the start', async () => {
  const id = await makeSession()
  const { env } = host
  const { code, output } = await runServer({ ...env, ASH_PORT: '0', ASH_DATA_DIR: `${host.dataDir()}-other` })
  expect(code).not.toBe(0)
  expect(output).toContain('holds the checkpoints of another database')
  expect(output).toContain('ASH_SNAPSHOT_URL')
  await host.restart('stop', loseFiles)
  expect(await read(id, 'precious')).toBe('precious')
})
