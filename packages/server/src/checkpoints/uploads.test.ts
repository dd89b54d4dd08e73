import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type CheckpointStore, fetchCheckpoint, type RemoteStore } from '@ash-ai/sandbox'
import { S3_TEST_KEY, useS3 } from '@ash-ai/sandbox/testing'
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import type { Db } from '../db/open-db.ts'
import { openSqliteTestDb, type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { createLogger } from '../http/logger.ts'
import { makeSession, makeStore } from './testing/checkpoint-fixture.ts'
import type { UploadJob } from './testing/upload-process.ts'
import { Uploads } from './uploads.ts'

const s3 = useS3()
const log = createLogger('silent')
let store: CheckpointStore
let remote: RemoteStore

beforeEach(async () => {
  store = await makeStore()
  remote = (await s3.open()).remote
})

function startUploads(db: Db, hostId = 'host-a'): Uploads {
  const uploads = new Uploads({ db, hostId, store, remote, log })
  uploads.start()
  onTestFinished(() => uploads.close())
  return uploads
}

const listUploaded = async (db: Db) => {
  const rows = await db
    .selectFrom('checkpoints')
    .select(['id', 'uploaded_at'])
    .orderBy('uploaded_at')
    .execute()
  return rows.filter(({ uploaded_at }) => uploaded_at !== null).map(({ id }) => id)
}

for (const database of testDatabases) {
  describe(database.kind, () => {
    let opened: TestDb
    beforeEach(async () => {
      opened = await database.open()
    })
    afterEach(() => opened.close())

    test('checkpoints of this host are uploaded, oldest first, and a fresh host can fetch them', async () => {
      const { db } = opened
      const session = await makeSession(db, store)
      const [first, second] = [await session.save({ a: 'one' }), await session.save({ a: 'two', b: 'new' })]
      const theirs = await session.save({ a: 'three' }, { owner_id: 'host-b' })
      const uploads = startUploads(db)
      await uploads.settled()
      expect(await listUploaded(db)).toEqual([first.id, second.id])
      const fresh = await makeStore()
      await fetchCheckpoint(fresh, remote, 'default', second.manifest)
      expect(await fresh.missing('default', second.manifest)).toEqual([])
      expect(await remote.has('default', theirs.manifest)).toBeUndefined()
    })
  })
}

describe('uploads', () => {
  let opened: TestDb
  let db: Db
  beforeEach(async () => {
    opened = await openSqliteTestDb()
    db = opened.db
  })
  afterEach(() => opened.close())

  test('a new checkpoint is uploaded when told of', async () => {
    const session = await makeSession(db, store)
    const uploads = startUploads(db)
    await uploads.settled()
    const { id } = await session.save({ a: 'one' })
    uploads.wake()
    await uploads.settled()
    expect(await listUploaded(db)).toEqual([id])
  })

  test('what could not be uploaded before a restart is uploaded after it', async () => {
    const { id } = await (await makeSession(db, store)).save({ a: 'one' })
    await s3.server().stop()
    const before = startUploads(db)
    await before.settled()
    expect(await listUploaded(db)).toEqual([])
    await before.close()
    await s3.server().start()
    await startUploads(db).settled()
    expect(await listUploaded(db)).toEqual([id])
  })

  test('an outage is waited out', async () => {
    const { id } = await (await makeSession(db, store)).save({ a: 'one' })
    await s3.server().stop()
    const uploads = startUploads(db)
    await uploads.settled()
    await s3.server().start()
    await expect.poll(() => listUploaded(db), { timeout: 10_000 }).toEqual([id])
  })

  test('a checkpoint that was deleted meanwhile holds up nobody', async () => {
    const session = await makeSession(db, store)
    const [first, second] = [await session.save({ a: 'one' }), await session.save({ a: 'two' })]
    await db.deleteFrom('checkpoints').where('id', '=', first.id).execute()
    await startUploads(db).settled()
    expect(await listUploaded(db)).toEqual([second.id])
  })

  test('a damaged checkpoint holds up no other, of its session neither', async () => {
    const [one, other] = [await makeSession(db, store), await makeSession(db, store)]
    const damaged = await one.save({ a: 'damaged' })
    const later = await one.save({ a: 'later' })
    const whole = await other.save({ a: 'whole' })
    await rm(join(store.dir, 'tenants', 'default', damaged.manifest.slice(0, 2), damaged.manifest))
    await startUploads(db).settled()
    expect(await listUploaded(db)).toEqual([later.id, whole.id])
  })

  test('a sweep under way is waited for', async () => {
    const { id } = await (await makeSession(db, store)).save({ a: 'one' })
    const sweep = await remote.beginSweep('default')
    await startUploads(db).settled()
    expect(await listUploaded(db)).toEqual([])
    await sweep.end()
    await expect.poll(() => listUploaded(db), { timeout: 10_000 }).toEqual([id])
  })

  test('many checkpoints of several tenants all arrive', async () => {
    const sessions = await Promise.all(
      ['t1', 't1', 't2', 't3'].map((tenant) => makeSession(db, store, tenant)),
    )
    for (let turn = 0; turn < 4; turn++) for (const session of sessions) await session.save({ a: `${turn}` })
    const uploads = startUploads(db)
    await uploads.settled()
    expect(await listUploaded(db)).toHaveLength(16)
  })

  test('closing does not wait for an upload under way, and leaves it to be done again', async () => {
    await (await makeSession(db, store)).save({ a: 'one' })
    const asked = Promise.withResolvers<void>()
    const stuck = Object.assign(Object.create(remote) as RemoteStore, {
      isSwept: () => {
        asked.resolve()
        return new Promise<boolean>(() => {})
      },
    })
    const uploads = new Uploads({ db, hostId: 'host-a', store, remote: stuck, log })
    uploads.start()
    await asked.promise
    await uploads.close()
    expect(await listUploaded(db)).toEqual([])
  })

  test.each(['upload-blobs', 'upload-manifest', 'upload-recorded'])(
    'a server killed at %s leaves nothing half done that the next start does not finish',
    async (faultPoint) => {
      const { remote: fetching, config } = await s3.open()
      const { id, manifest } = await (await makeSession(db, store)).save({ a: 'one', b: 'two' })
      const job = { dataDir: opened.dataDir, storeDir: store.dir, remote: config }
      expect(await runUploads({ ...job, faultPoint })).toBe('SIGKILL')
      const isThere = (await fetching.has('default', manifest)) !== undefined
      expect(isThere).toBe(faultPoint !== 'upload-blobs')
      expect(await runUploads(job)).toBe(0)
      expect(await listUploaded(db)).toEqual([id])
      const fresh = await makeStore()
      await fetchCheckpoint(fresh, fetching, 'default', manifest)
      expect(await fresh.missing('default', manifest)).toEqual([])
    },
  )
})

/** Resolves with how the process ended. */
async function runUploads(job: UploadJob): Promise<number | NodeJS.Signals> {
  const script = fileURLToPath(new URL('./testing/upload-process.ts', import.meta.url))
  const env = { AWS_ACCESS_KEY_ID: S3_TEST_KEY, AWS_SECRET_ACCESS_KEY: S3_TEST_KEY }
  const args = ['--conditions=development', script, JSON.stringify(job)]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'], env })
  const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null]
  return signal ?? code ?? -1
}
