import {
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { DeepPaths } from './deep-paths.ts'
import { joinPath } from './entry-path.ts'
import { blobPath } from './local-blobs.ts'
import { CHUNK_BYTES } from './manifest-entry.ts'
import { storeFixture, TENANT } from './testing/store-fixture.ts'

const bytes = async (file: { stream: () => NodeJS.ReadableStream }) => {
  const parts: Buffer[] = []
  for await (const part of file.stream()) parts.push(part as Buffer)
  return Buffer.concat(parts)
}

/** One small tree with a bit of everything. */
function withTree() {
  const fixture = storeFixture()
  const session = fixture.session('one')
  const at = (path: string) => join(session.roots.workspace, path)
  mkdirSync(at('a'))
  writeFileSync(at('a/b.txt'), 'text')
  writeFileSync(at('a.txt'), 'ü')
  linkSync(at('a/b.txt'), at('name'))
  symlinkSync('/etc/passwd', at('link'))
  writeFileSync(join(session.roots.home, 'private'), 'home')
  return { ...fixture, session, at }
}

describe('reading a checkpoint', () => {
  test('the workspace is listed as a live one is', async () => {
    const { store, save, session } = withTree()
    const { manifest, files, bytes: length } = await save(session)
    expect({ files, length }).toEqual({ files: 4, length: 10 })
    const { files: listed, truncated } = await store.list(TENANT, manifest, { limit: 100 })
    expect(listed.map(({ path, type, size }) => [path, type, size])).toEqual([
      ['a', 'directory', 0],
      ['a/b.txt', 'file', 4],
      ['a.txt', 'file', 2],
      ['link', 'link', 11],
      ['name', 'file', 4],
    ])
    expect(truncated).toBe(false)
    expect(listed[1]?.modifiedAt).toBe(statSync(join(session.roots.workspace, 'a/b.txt')).mtime.toISOString())
    expect(await store.list(TENANT, manifest, { limit: 2 })).toMatchObject({
      truncated: true,
      files: { length: 2 },
    })
    const below = await store.list(TENANT, manifest, { path: 'a', limit: 1 })
    expect(below).toMatchObject({ truncated: false, files: [{ path: 'a/b.txt' }] })
  })

  test.each([
    ['gone', 'file_not_found'],
    ['a/gone', 'file_not_found'],
    ['link', 'path_invalid'],
    ['link/x', 'path_invalid'],
    ['a.txt/x', 'path_invalid'],
    ['a', 'not_a_file'],
    ['../one/home/private', 'path_invalid'],
    ['/etc/passwd', 'path_invalid'],
    ['', 'path_invalid'],
  ])('opening %j is refused: %s', async (path, code) => {
    const { store, save, session } = withTree()
    const { manifest } = await save(session)
    await expect(store.openFile(TENANT, manifest, path)).rejects.toMatchObject({ code })
  })

  test('a folder that is none cannot be listed', async () => {
    const { store, save, session } = withTree()
    const { manifest } = await save(session)
    for (const [path, code] of [
      ['a.txt', 'path_invalid'],
      ['gone', 'file_not_found'],
      ['..', 'path_invalid'],
    ] as const) {
      await expect(store.list(TENANT, manifest, { path, limit: 9 })).rejects.toMatchObject({ code })
    }
  })

  test('a file is read with its holes, also by another name', async () => {
    const { store, save, session, at } = withTree()
    const content = Buffer.alloc(3 * CHUNK_BYTES + 5)
    content.fill('x', 2 * CHUNK_BYTES, 2 * CHUNK_BYTES + 9)
    writeFileSync(at('holes'), content)
    const { manifest } = await save(session)
    const file = await store.openFile(TENANT, manifest, 'holes')
    expect(file.size).toBe(content.length)
    expect((await bytes(file)).equals(content)).toBe(true)
    expect((await bytes(await store.openFile(TENANT, manifest, 'name'))).toString()).toBe('text')
  })

  test('what became of files is told, and a new time alone is nothing', async () => {
    const { store, save, session, at } = withTree()
    const from = await save(session)
    writeFileSync(at('a.txt'), 'ü')
    writeFileSync(at('a/b.txt'), 'longer')
    writeFileSync(at('new'), '')
    rmSync(at('link'))
    const to = await save(session)
    const entry = (path: string, size: number, type = 'file') => ({ path, type, size })
    expect(await store.diff(TENANT, from.manifest, to.manifest, 100)).toEqual({
      added: [entry('new', 0)],
      changed: [entry('a/b.txt', 6), entry('name', 6)],
      removed: [entry('link', 11, 'link')],
      truncated: false,
    })
    expect(await store.diff(TENANT, from.manifest, to.manifest, 1)).toMatchObject({
      changed: [entry('a/b.txt', 6)],
      truncated: true,
    })
  })

  test('a tenant has no part in the checkpoints of another', async () => {
    const { store, save, session } = withTree()
    const { manifest } = await save(session)
    await expect(store.list('other', manifest, { limit: 9 })).rejects.toMatchObject({
      code: 'checkpoint_damaged',
    })
    expect(await store.missing('../default', manifest)).toEqual([manifest])
  })
})

describe('blobs', () => {
  test('all that a checkpoint needs is named, less what another has', async () => {
    const { store, save, session, at, snapshots } = withTree()
    const first = await save(session)
    writeFileSync(at('new'), 'new')
    const second = await save(session)
    const hashes = await store.hashes(TENANT, second.manifest)
    expect(hashes).toHaveLength(5)
    expect(hashes.at(-1)).toBe(second.manifest)
    for (const hash of hashes) expect(statSync(blobPath(snapshots, TENANT, hash)).isFile()).toBe(true)
    expect(await store.hashes(TENANT, second.manifest, first.manifest)).toHaveLength(2)
  })

  test('those that are gone or cut are missing; of a checkpoint whose list is gone, the list', async () => {
    const { store, save, session, snapshots } = withTree()
    const { manifest } = await save(session)
    expect(await store.missing(TENANT, manifest)).toEqual([])
    const [one = '', two = ''] = await store.hashes(TENANT, manifest)
    rmSync(blobPath(snapshots, TENANT, one))
    truncateSync(blobPath(snapshots, TENANT, two), 1)
    expect(new Set(await store.missing(TENANT, manifest))).toEqual(new Set([one, two]))
    writeFileSync(blobPath(snapshots, TENANT, manifest), 'torn')
    expect(await store.missing(TENANT, manifest)).toEqual([manifest])
  })

  test('a log that only grows costs its tail', async () => {
    const { save, session, at } = withTree()
    writeFileSync(at('log'), Buffer.alloc(4 * CHUNK_BYTES, 'log '))
    await save(session)
    writeFileSync(at('log'), 'tail', { flag: 'a' })
    expect((await save(session)).newBytes).toBeLessThan(2000)
  })

  test('what was swept is stored again, though its files have not changed', async () => {
    const { store, save, restore, session, emptySession, snapshots } = withTree()
    const { manifest } = await save(session)
    const copy = emptySession('copy')
    await restore(manifest, copy)
    await store.exclusive(TENANT, async () => {
      for (const hash of await store.hashes(TENANT, manifest)) rmSync(blobPath(snapshots, TENANT, hash))
    })
    expect((await save(copy)).manifest).toBe(manifest)
    expect(await store.missing(TENANT, manifest)).toEqual([])
  })
})

describe('damage', () => {
  test.each([
    ['is missing', (path: string) => rmSync(path)],
    ['is torn', (path: string) => truncateSync(path, 2)],
    ['has other bytes', (path: string) => writeFileSync(path, 'TEXT')],
  ])('a blob that %s is told with the name of its file, and nothing is restored', async (_, damage) => {
    const { store, save, restore, session, emptySession, snapshots, dir } = withTree()
    const { manifest } = await save(session)
    const [hash = ''] = await store.hashes(TENANT, manifest)
    damage(blobPath(snapshots, TENANT, hash))
    const expected = { code: 'checkpoint_damaged', message: expect.stringContaining('"a/b.txt"') }
    await expect(restore(manifest, emptySession('copy'))).rejects.toMatchObject(expected)
    expect(readdirSync(join(dir, 'copy'))).toEqual([])
    await expect(bytes(await store.openFile(TENANT, manifest, 'a/b.txt'))).rejects.toMatchObject(expected)
  })

  test('a manifest that is missing or damaged is told', async () => {
    const { store, save, restore, session, emptySession, snapshots } = withTree()
    const { manifest } = await save(session)
    const path = blobPath(snapshots, TENANT, manifest)
    const whole = readFileSync(path)
    for (const damage of [() => writeFileSync(path, whole.subarray(1)), () => rmSync(path)]) {
      damage()
      await expect(restore(manifest, emptySession(`copy${damage}`.length.toString()))).rejects.toMatchObject({
        code: 'checkpoint_damaged',
      })
      await expect(store.list(TENANT, manifest, { limit: 1 })).rejects.toMatchObject({
        code: 'checkpoint_damaged',
      })
      await expect(store.hashes(TENANT, manifest)).rejects.toMatchObject({ code: 'checkpoint_damaged' })
    }
  })
})

describe('saving', () => {
  test('a commit that fails is the failure of the save, and the next one works', async () => {
    const { store, save, session } = withTree()
    const request = { tenantId: TENANT, ...session, pids: [] }
    await expect(store.save(request, () => Promise.reject(new Error('no row')))).rejects.toThrow('no row')
    expect((await save(session)).files).toBe(4)
  })

  test('everything is stored when the commit runs', async () => {
    const { store, session } = withTree()
    const missing = await store.save({ tenantId: TENANT, ...session, pids: [] }, ({ manifest }) =>
      store.missing(TENANT, manifest),
    )
    expect(missing).toEqual([])
  })

  test('two at once of the same files, and of different ones', async () => {
    const { save, session, session: one, store } = withTree()
    const results = await Promise.all([save(session), save(one), save(session)])
    expect(new Set(results.map(({ manifest }) => manifest)).size).toBe(1)
    expect(await store.missing(TENANT, results[0]?.manifest ?? '')).toEqual([])
  })

  test('a save waits for a sweep, and a sweep for the commit of a save', async () => {
    const { store, save, session } = withTree()
    const log: string[] = []
    const sweep = Promise.withResolvers<void>()
    const sweeping = store.exclusive(TENANT, async () => {
      log.push('sweep begins')
      await sweep.promise
      log.push('sweep ends')
    })
    const saving = store.save({ tenantId: TENANT, ...session, pids: [] }, async () => log.push('commit'))
    const again = store.exclusive(TENANT, async () => log.push('sweep again'))
    await expect.poll(() => log).toEqual(['sweep begins'])
    sweep.resolve()
    await Promise.all([sweeping, saving, again])
    expect(log).toEqual(['sweep begins', 'sweep ends', 'commit', 'sweep again'])
    await save(session)
  })

  test.each(['', '{', '{"version":1,"generation":"x","workspace":3,"home":[]}', '\0'.repeat(5000)])(
    'an index that is torn or foreign only costs reading: %j',
    async (text) => {
      const { save, session } = withTree()
      const { manifest } = await save(session)
      writeFileSync(session.indexFile, text)
      expect((await save(session)).manifest).toBe(manifest)
    },
  )

  test('a folder that does not exist is told by its name', async () => {
    const { save, emptySession } = storeFixture()
    await expect(save(emptySession('none'))).rejects.toMatchObject({
      code: 'checkpoint_failed',
      message: expect.stringMatching(/^The workspace: ENOENT: no such file or directory$/),
    })
  })

  test('with sync, all the same comes of it', async () => {
    const { save, restore, session, emptySession, dir } = storeFixture({ sync: true })
    const one = session('one')
    writeFileSync(join(one.roots.workspace, 'f'), 'x')
    await restore((await save(one)).manifest, emptySession('copy'))
    expect(readFileSync(join(dir, 'copy/workspace/f'), 'utf8')).toBe('x')
  })
})

describe('restoring', () => {
  test('a workspace that exists is left alone', async () => {
    const { save, restore, session } = withTree()
    const { manifest } = await save(session)
    await expect(restore(manifest, session)).rejects.toMatchObject({ code: 'checkpoint_failed' })
    expect((await save(session)).manifest).toBe(manifest)
  })

  test.runIf(process.getuid?.() === 0)('everything belongs to the owner', async () => {
    const { store, save, session, emptySession } = withTree()
    const { manifest } = await save(session)
    const copy = emptySession('copy')
    await store.restore({ tenantId: TENANT, manifest, ...copy, owner: { uid: 12345, gid: 23456 } })
    for (const path of ['', 'a', 'a/b.txt', 'a.txt', 'name']) {
      expect(statSync(join(copy.roots.workspace, path))).toMatchObject({ uid: 12345, gid: 23456 })
    }
    expect(statSync(join(copy.roots.home, 'private'))).toMatchObject({ uid: 12345 })
  })

  test('what a crash left beside the folders is removed, however deep', async () => {
    const { dir, save, restore, session, emptySession } = withTree()
    const { manifest } = await save(session)
    const copy = emptySession('copy')
    mkdirSync(join(dir, 'copy/.workspace'))
    mkdirSync(join(dir, 'copy/home/half'), { recursive: true })
    const deep = new DeepPaths(join(dir, 'copy/.workspace'))
    const name = 'x'.repeat(250)
    for (let path = name; path.length < 6000; path = joinPath(path, name)) mkdirSync(deep.at(path))
    deep.close()
    await restore(manifest, copy)
    expect(readdirSync(join(dir, 'copy')).filter((entry) => entry !== 'index')).toEqual(['home', 'workspace'])
    expect(readdirSync(copy.roots.home)).toEqual(['private'])
  })

  test('holes take no room', async () => {
    const { save, restore, session, emptySession, at } = withTree()
    const copy = emptySession('copy')
    writeFileSync(at('zeros'), Buffer.alloc(2 * CHUNK_BYTES))
    writeFileSync(at('sparse'), '')
    truncateSync(at('sparse'), 2 ** 40)
    await restore((await save(session)).manifest, copy)
    for (const [name, size] of [
      ['zeros', 2 * CHUNK_BYTES],
      ['sparse', 2 ** 40],
    ] as const) {
      expect(statSync(join(copy.roots.workspace, name))).toMatchObject({ size, blocks: 0 })
    }
  })
})
