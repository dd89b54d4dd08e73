import type { CheckpointStore } from '@ash-ai/sandbox'
import { useS3 } from '@ash-ai/sandbox/testing'
import { GarbageReport } from '@ash-ai/shared'
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { type TestDb, testDatabases } from '../db/testing/test-databases.ts'
import { createHttpApp } from '../http/http-app.ts'
import { createLogger } from '../http/logger.ts'
import { createMetrics } from '../http/metrics.ts'
import { collectGarbage, type GarbageDeps } from './garbage.ts'
import { registerGarbageRoutes } from './garbage-routes.ts'
import { makeSession, makeStore } from './testing/checkpoint-fixture.ts'
import { Uploads } from './uploads.ts'

const s3 = useS3()
const log = createLogger('silent')
const DAY_MS = 86_400_000

for (const database of testDatabases) {
  describe(database.kind, () => {
    let opened: TestDb
    let checkpoints: CheckpointStore
    let deps: GarbageDeps
    beforeEach(async () => {
      opened = await database.open()
      checkpoints = await makeStore()
      deps = { db: opened.db, hostId: 'host-a', checkpoints, remote: undefined, log }
    })
    afterEach(() => opened.close())

    const forget = (id: string) => opened.db.deleteFrom('checkpoints').where('id', '=', id).execute()

    test('what only deleted checkpoints had is deleted, here and, a day later, in the remote store', async () => {
      const { remote, prefix } = await s3.open()
      const all = { ...deps, remote }
      const session = await makeSession(opened.db, checkpoints)
      const [first, second] = [await session.save({ a: 'one' }), await session.save({ a: 'two' })]
      const uploads = new Uploads({ ...deps, store: checkpoints, remote })
      uploads.start()
      await uploads.settled()
      await uploads.close()
      await forget(first.id)
      const none = { blobs: 0, bytes: 0 }
      const counted = await collectGarbage(all, 'default', { dryRun: true })
      expect(counted).toMatchObject({ dryRun: true, local: { blobs: 2 }, kept: { blobs: 2 }, remote: none })
      expect(await collectGarbage(all, 'default', {})).toEqual({ ...counted, dryRun: false })
      for await (const { hash } of remote.list('default')) {
        await s3.server().age(`${prefix}default/${hash.slice(0, 2)}/${hash}`, DAY_MS + 60_000)
      }
      const later = await collectGarbage(all, 'default', {})
      expect(later).toMatchObject({ local: none, remote: { blobs: 2 } })
      expect(await checkpoints.missing('default', second.manifest)).toEqual([])
      expect((await Array.fromAsync(remote.list('default'))).map(({ hash }) => hash).sort()).toEqual(
        (await checkpoints.hashes('default', second.manifest)).sort(),
      )
    })

    test('a tenant loses nothing when another is swept', async () => {
      const [mine, theirs] = [
        await makeSession(opened.db, checkpoints, 'mine'),
        await makeSession(opened.db, checkpoints, 'theirs'),
      ]
      const [one, two] = [await mine.save({ a: 'same' }), await theirs.save({ a: 'same' })]
      await forget(one.id)
      await collectGarbage(deps, 'mine', {})
      expect(await checkpoints.missing('mine', one.manifest)).toEqual([one.manifest])
      expect(await checkpoints.missing('theirs', two.manifest)).toEqual([])
    })

    test('more checkpoints than one read returns all count, also those of the same moment', async () => {
      const session = await makeSession(opened.db, checkpoints)
      const first = await session.save({ a: 'same' })
      const copies = Array.from({ length: 1_500 }, (_, index) => ({
        ...first,
        id: `${index}`,
        created_at: first.created_at + (index % 2),
      }))
      for (let start = 0; start < copies.length; start += 500) {
        await opened.db
          .insertInto('checkpoints')
          .values(copies.slice(start, start + 500))
          .execute()
      }
      const last = await session.save({ a: 'last' })
      const report = await collectGarbage(deps, 'default', {})
      expect(report).toMatchObject({ local: { blobs: 0 }, kept: { blobs: 4 } })
      expect(await checkpoints.missing('default', last.manifest)).toEqual([])
    })

    test('the remote store is left alone while another host has not uploaded', async () => {
      const { remote, prefix } = await s3.open()
      const old = 'a'.repeat(64)
      await remote.put('default', old, Buffer.from('old'))
      await s3.server().age(`${prefix}default/aa/${old}`, DAY_MS + 60_000)
      const session = await makeSession(opened.db, checkpoints)
      const theirs = await session.save({ a: 'theirs' }, { owner_id: 'host-b', manifest: 'b'.repeat(64) })
      expect(await collectGarbage({ ...deps, remote }, 'default', {})).not.toHaveProperty('remote')
      expect(await remote.has('default', old)).toBeDefined()
      await forget(theirs.id)
      expect(await collectGarbage({ ...deps, remote }, 'default', {})).toMatchObject({ remote: { blobs: 1 } })
    })
  })
}

test('POST /api/gc tells what was deleted, and deletes nothing when only asked', async () => {
  const opened = await (testDatabases[0] ?? expect.fail('no database')).open()
  onTestFinished(() => opened.close())
  const checkpoints = await makeStore()
  const { db } = opened
  const app = await createHttpApp({ db, apiKey: 'key', log, metrics: createMetrics(), version: '0' })
  onTestFinished(() => app.close())
  registerGarbageRoutes(app, { db, hostId: 'host-a', checkpoints, remote: undefined, log })
  const { id } = await (await makeSession(db, checkpoints)).save({ a: 'one' })
  await db.deleteFrom('checkpoints').where('id', '=', id).execute()
  const call = (payload?: object) =>
    app.inject({
      method: 'POST',
      url: '/api/gc',
      headers: { authorization: 'Bearer key' },
      ...(payload && { payload }),
    })
  const counted = GarbageReport.parse((await call({ dryRun: true })).json())
  expect(counted).toMatchObject({ dryRun: true, local: { blobs: 2 } })
  expect((await call()).json()).toEqual({ ...counted, dryRun: false })
  expect((await call({})).json()).toMatchObject({ local: { blobs: 0 } })
  expect((await call({ dryRun: 'yes' })).statusCode).toBe(400)
})
