import { mkdir, readdir, rm, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { useS3 } from '../testing/s3-server.ts'
import { tempDir } from '../testing/temp-dir.ts'
import { CheckpointStore } from './checkpoint-store.ts'
import { temporaryPath, tenantPath } from './local-blobs.ts'
import { REMOTE_GRACE_MS, type RemoteStore } from './remote-store.ts'
import { fetchCheckpoint, uploadCheckpoint } from './remote-transfer.ts'
import { sweepLocal, sweepRemote } from './sweep.ts'
import type { KnownCheckpoint } from './sweep-marks.ts'

const tenantId = 'default'
const never = new AbortController().signal

/** A host with its store, one session's folders, and a database of checkpoints. */
async function makeHost(rows = new Map<string, KnownCheckpoint>()) {
  const dir = await tempDir()
  const store = new CheckpointStore({ dir: join(dir, 'store'), sync: false, threads: 2 })
  onTestFinished(() => store.close())
  const roots = { workspace: join(dir, 'workspace'), home: join(dir, 'home') }
  for (const root of Object.values(roots)) await mkdir(root)
  let saves = 0
  return {
    store,
    rows,
    checkpoints: async () => [...rows.values()],
    write: (name: string, text: string) => writeFile(join(roots.workspace, name), text),
    save: () =>
      store.save({ tenantId, roots, indexFile: join(dir, 'index'), pids: [] }, async ({ manifest }) => {
        const id = `${dir}-${++saves}`
        rows.set(id, { id, manifest, isOwn: true })
        return { id, manifest }
      }),
    async blobs(): Promise<string[]> {
      const names = await readdir(tenantPath(store.dir, tenantId), { recursive: true })
      return names.map((name) => name.slice(3)).filter((name) => /^[0-9a-f]{64}$/.test(name))
    },
  }
}

type Host = Awaited<ReturnType<typeof makeHost>>

const sweep = (host: Host, options: { dryRun?: boolean; remote?: RemoteStore } = {}) =>
  sweepLocal(host.store, options.remote, {
    tenantId,
    checkpoints: host.checkpoints,
    dryRun: options.dryRun ?? false,
  })

async function referenced({ store, rows }: Host): Promise<string[]> {
  const hashes = await Promise.all([...rows.values()].map(({ manifest }) => store.hashes(tenantId, manifest)))
  return [...new Set(hashes.flat())]
}

describe('a sweep of this host', () => {
  test('deletes what only deleted checkpoints had, and says how much', async () => {
    const host = await makeHost()
    await host.write('shared', 'shared')
    await host.write('old', 'of the first alone')
    const first = await host.save()
    await rm(join(host.store.dir, '..', 'workspace', 'old'))
    await host.save()
    host.rows.delete(first.id)
    const counted = await sweep(host, { dryRun: true })
    expect(counted.deleted.blobs).toBe(2)
    expect(await host.blobs()).toHaveLength(4)
    expect(await sweep(host)).toEqual(counted)
    expect((await host.blobs()).sort()).toEqual((await referenced(host)).sort())
    expect(await sweep(host)).toEqual({ deleted: { blobs: 0, bytes: 0 }, kept: counted.kept })
  })

  test('of a tenant without any checkpoint is over at once', async () => {
    const host = await makeHost()
    expect(await sweep(host)).toEqual({ deleted: { blobs: 0, bytes: 0 }, kept: { blobs: 0, bytes: 0 } })
  })

  test('deletes nothing while a checkpoint cannot be read, and names it', async () => {
    const host = await makeHost()
    await host.write('a', 'a')
    const unused = await host.save()
    await host.write('a', 'b')
    const damaged = await host.save()
    host.rows.delete(unused.id)
    const path = join(tenantPath(host.store.dir, tenantId), damaged.manifest.slice(0, 2), damaged.manifest)
    await writeFile(path, 'something else')
    await expect(sweep(host)).rejects.toMatchObject({
      code: 'checkpoint_damaged',
      message: expect.stringContaining(damaged.id),
    })
    expect(await host.blobs()).toHaveLength(4)
  })

  test('keeps what a checkpoint of another host needs here, and does without what is not here', async () => {
    const host = await makeHost()
    await host.write('a', 'a')
    const { id, manifest } = await host.save()
    host.rows.set(id, { id, manifest, isOwn: false })
    host.rows.set('elsewhere', { id: 'elsewhere', manifest: 'e'.repeat(64), isOwn: false })
    expect((await sweep(host)).deleted.blobs).toBe(0)
    host.rows.delete(id)
    expect((await sweep(host)).deleted.blobs).toBe(2)
  })

  test('removes what a crash left half written, but nothing that is being written', async () => {
    const host = await makeHost()
    await host.write('a', 'a')
    await host.save()
    const folder = temporaryPath(host.store.dir)
    for (const name of ['old', 'new']) await writeFile(join(folder, name), 'half')
    const hoursAgo = new Date(Date.now() - 2 * 3_600_000)
    await utimes(join(folder, 'old'), hoursAgo, hoursAgo)
    await sweep(host)
    expect(await readdir(folder)).toEqual(['new'])
  })

  test('never takes a blob that a checkpoint has, however saves, deletions and sweeps meet', async () => {
    for (const seed of [1, 2, 3]) await meetAtRandom(await makeHost(), random(seed))
  })
})

/** Few contents for many saves: what one save drops, another is about to use again. */
async function meetAtRandom(host: Host, next: (below: number) => number): Promise<void> {
  for (let round = 0; round < 25; round++) {
    const under = [saveSome(host, next)]
    if (next(2) === 0) under.push(sweep(host))
    for (const id of [...host.rows.keys()]) if (next(3) === 0) host.rows.delete(id)
    if (next(2) === 0) under.push(sweep(host))
    await Promise.all(under)
    for (const { manifest } of host.rows.values()) {
      expect(await host.store.missing(tenantId, manifest)).toEqual([])
    }
  }
  await sweep(host)
  expect((await host.blobs()).sort()).toEqual((await referenced(host)).sort())
}

async function saveSome(host: Host, next: (below: number) => number): Promise<unknown> {
  for (let count = next(3); count >= 0; count--) {
    for (let files = next(3); files >= 0; files--) await host.write(`file-${next(4)}`, `content ${next(6)}`)
    await host.save()
  }
  return undefined
}

/** Mulberry32. */
function random(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}

describe('a sweep of the remote store', () => {
  const s3 = useS3()
  let prefix: string
  let remote: RemoteStore

  beforeEach(async () => {
    const opened = await s3.open()
    prefix = opened.prefix
    remote = opened.remote
  })

  const keyOf = (hash: string) => `${prefix}${tenantId}/${hash.slice(0, 2)}/${hash}`
  const upload = (host: Host, manifest: string) =>
    uploadCheckpoint(host.store, remote, { tenantId, manifest }, never)
  const remoteHashes = async () => (await Array.fromAsync(remote.list(tenantId))).map(({ hash }) => hash)
  const ageAll = async () => {
    for (const hash of await remoteHashes()) await s3.server().age(keyOf(hash), REMOTE_GRACE_MS + 60_000)
  }
  const sweepAll = (host: Host, dryRun = false) =>
    sweepRemote(host.store, remote, { tenantId, checkpoints: host.checkpoints, dryRun })

  test('deletes what is old and unused, and nothing else', async () => {
    const host = await makeHost()
    await host.write('a', 'one')
    const first = await host.save()
    await upload(host, first.manifest)
    await host.write('a', 'two')
    const second = await host.save()
    await upload(host, second.manifest)
    host.rows.delete(first.id)
    expect(await sweepAll(host)).toMatchObject({ blobs: 0 })
    await ageAll()
    expect(await sweepAll(host, true)).toMatchObject({ blobs: 2 })
    expect(await remoteHashes()).toHaveLength(4)
    expect(await sweepAll(host)).toMatchObject({ blobs: 2 })
    expect((await remoteHashes()).sort()).toEqual((await host.store.hashes(tenantId, second.manifest)).sort())
    expect(await remote.isSwept(tenantId)).toBe(false)
  })

  test('fetches the lists of files that only other hosts have', async () => {
    const [here, there] = [await makeHost(), await makeHost()]
    await there.write('a', 'theirs')
    const { id, manifest } = await there.save()
    await upload(there, manifest)
    await ageAll()
    here.rows.set(id, { id, manifest, isOwn: false })
    expect(await sweepAll(here)).toMatchObject({ blobs: 0 })
    expect(await remoteHashes()).toHaveLength(2)
  })

  test('deletes nothing while a checkpoint of another host is not uploaded yet', async () => {
    const [here, there] = [await makeHost(), await makeHost()]
    await here.write('a', 'unused')
    const unused = await here.save()
    await upload(here, unused.manifest)
    await ageAll()
    here.rows.delete(unused.id)
    const { id, manifest } = await there.save()
    here.rows.set(id, { id, manifest, isOwn: false })
    await expect(sweepAll(here)).rejects.toMatchObject({ code: 'checkpoint_damaged' })
    expect(await remoteHashes()).toHaveLength(2)
    expect(await remote.isSwept(tenantId)).toBe(false)
  })

  test('and an upload keep out of the way of each other', async () => {
    const host = await makeHost()
    const { manifest } = await host.save()
    const under = await remote.beginSweep(tenantId)
    await expect(upload(host, manifest)).rejects.toMatchObject({ code: 'store_unavailable' })
    await under.end()
    await upload(host, manifest)
  })

  test('that a crash cut off holds up uploads for a while only', async () => {
    const host = await makeHost()
    const { manifest } = await host.save()
    await remote.beginSweep(tenantId)
    await s3.server().ageAll(`${prefix}=sweeps/${tenantId}`, 3_600_000)
    await upload(host, manifest)
  })

  test('old objects that a new checkpoint uses again are made young', async () => {
    const host = await makeHost()
    await host.write('a', 'again')
    const first = await host.save()
    await upload(host, first.manifest)
    await ageAll()
    host.rows.delete(first.id)
    const second = await host.save()
    expect(second.manifest).toBe(first.manifest)
    expect(await upload(host, second.manifest)).toMatchObject({ blobs: 2 })
    host.rows.delete(second.id)
    expect(await sweepAll(host)).toMatchObject({ blobs: 0 })
  })

  test('leaves every checkpoint whole for a host that has nothing', async () => {
    const host = await makeHost()
    await host.write('a', 'one')
    await host.write('b', 'both')
    const first = await host.save()
    await upload(host, first.manifest)
    await host.write('a', 'two')
    const second = await host.save()
    await upload(host, second.manifest)
    await ageAll()
    host.rows.delete(first.id)
    await sweepAll(host)
    const other = await makeHost()
    await fetchCheckpoint(other.store, remote, tenantId, second.manifest)
    expect(await other.store.missing(tenantId, second.manifest)).toEqual([])
  })
})
