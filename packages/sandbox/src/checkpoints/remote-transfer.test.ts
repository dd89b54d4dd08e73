import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, expect, onTestFinished, test } from 'vitest'
import { useS3 } from '../testing/s3-server.ts'
import { tempDir } from '../testing/temp-dir.ts'
import { CheckpointStore } from './checkpoint-store.ts'
import { blobPath } from './local-blobs.ts'
import type { RemoteStore } from './remote-store.ts'
import { fetchCheckpoint, uploadCheckpoint } from './remote-transfer.ts'

const tenantId = 'default'
const never = new AbortController().signal
const s3 = useS3()
let prefix: string
let remote: RemoteStore

beforeEach(async () => {
  const opened = await s3.open()
  prefix = opened.prefix
  remote = opened.remote
})

/** The files of a session and the store of its host. */
async function makeHost() {
  const folder = await tempDir()
  const store = new CheckpointStore({ dir: join(folder, 'store'), sync: true })
  onTestFinished(() => store.close())
  const roots = { workspace: join(folder, 'workspace'), home: join(folder, 'home') }
  return {
    store,
    roots,
    async save(files: Record<string, string | Buffer>): Promise<string> {
      for (const root of Object.values(roots)) await mkdir(root, { recursive: true })
      for (const [name, content] of Object.entries(files))
        await writeFile(join(roots.workspace, name), content)
      const request = { tenantId, roots, indexFile: join(folder, 'index'), pids: [] }
      return store.save(request, async ({ manifest }) => manifest)
    },
    restore: (manifest: string) =>
      store.restore({ tenantId, manifest, roots, owner: undefined, indexFile: join(folder, 'index') }),
  }
}

const keyOf = (hash: string) => `${prefix}${tenantId}/${hash.slice(0, 2)}/${hash}`

test('a checkpoint that was uploaded is fetched and restored on another host', async () => {
  const [here, there] = [await makeHost(), await makeHost()]
  const large = Buffer.alloc(3_500_000, 'large ')
  const manifest = await here.save({ 'a.txt': 'hello', large })
  const put = await uploadCheckpoint(here.store, remote, { tenantId, manifest }, never)
  const fetched = await fetchCheckpoint(there.store, remote, tenantId, manifest)
  expect(fetched).toEqual(put)
  await there.restore(manifest)
  expect(await readFile(join(there.roots.workspace, 'a.txt'), 'utf8')).toBe('hello')
  expect((await readFile(join(there.roots.workspace, 'large'))).equals(large)).toBe(true)
})

test('only what is new is uploaded, and only what is missing fetched', async () => {
  const [here, there] = [await makeHost(), await makeHost()]
  const first = await here.save({ a: 'one', b: 'same' })
  await uploadCheckpoint(here.store, remote, { tenantId, manifest: first }, never)
  await fetchCheckpoint(there.store, remote, tenantId, first)
  const second = await here.save({ a: 'two' })
  const request = { tenantId, manifest: second, uploadedBefore: first }
  expect(await uploadCheckpoint(here.store, remote, request, never)).toMatchObject({ blobs: 2 })
  expect(await uploadCheckpoint(here.store, remote, request, never)).toMatchObject({ blobs: 0 })
  expect(await fetchCheckpoint(there.store, remote, tenantId, second)).toMatchObject({ blobs: 2 })
  expect(await fetchCheckpoint(there.store, remote, tenantId, second)).toEqual({ blobs: 0, bytes: 0 })
})

test('an upload does without an earlier checkpoint that this host does not have', async () => {
  const here = await makeHost()
  const manifest = await here.save({ a: 'one' })
  const request = { tenantId, manifest, uploadedBefore: 'f'.repeat(64) }
  expect(await uploadCheckpoint(here.store, remote, request, never)).toMatchObject({ blobs: 2 })
})

test('what the store changed is refused and does not stay here', async () => {
  const [here, there] = [await makeHost(), await makeHost()]
  const manifest = await here.save({ a: 'original' })
  await uploadCheckpoint(here.store, remote, { tenantId, manifest }, never)
  const [blob = ''] = await here.store.hashes(tenantId, manifest)
  await writeFile(s3.server().objectFile(keyOf(blob)), 'replaced')
  await expect(fetchCheckpoint(there.store, remote, tenantId, manifest)).rejects.toMatchObject({
    code: 'checkpoint_damaged',
  })
  expect(await there.store.missing(tenantId, manifest)).toEqual([blob])
})

test('a checkpoint that nobody uploaded is told', async () => {
  const here = await makeHost()
  const fetched = fetchCheckpoint(here.store, remote, tenantId, 'a'.repeat(64))
  await expect(fetched).rejects.toMatchObject({ code: 'checkpoint_damaged' })
})

test('a damaged list of files is fetched again', async () => {
  const here = await makeHost()
  const manifest = await here.save({ a: 'one' })
  await uploadCheckpoint(here.store, remote, { tenantId, manifest }, never)
  const path = blobPath(here.store.dir, tenantId, manifest)
  const { length } = await readFile(path)
  await writeFile(path, Buffer.alloc(length))
  expect(await fetchCheckpoint(here.store, remote, tenantId, manifest)).toMatchObject({ blobs: 1 })
  expect(await here.store.missing(tenantId, manifest)).toEqual([])
})

test('a damaged blob is not uploaded, and without it no manifest', async () => {
  const here = await makeHost()
  const manifest = await here.save({ a: 'one' })
  const [blob = ''] = await here.store.hashes(tenantId, manifest)
  await writeFile(blobPath(here.store.dir, tenantId, blob), 'eno')
  await expect(uploadCheckpoint(here.store, remote, { tenantId, manifest }, never)).rejects.toMatchObject({
    code: 'checkpoint_damaged',
  })
  expect(await Array.fromAsync(remote.list(tenantId))).toEqual([])
})

test('an upload that is stopped has put no manifest', async () => {
  const here = await makeHost()
  const manifest = await here.save({ a: 'one' })
  const upload = uploadCheckpoint(here.store, remote, { tenantId, manifest }, AbortSignal.abort())
  await expect(upload).rejects.toThrow('aborted')
  expect(await remote.has(tenantId, manifest)).toBeUndefined()
})
