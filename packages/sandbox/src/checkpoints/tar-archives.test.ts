import { execFile } from 'node:child_process'
import { hash } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import {
  chmod,
  link,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { pack } from 'tar-stream'
import { expect, onTestFinished, test } from 'vitest'
import { tempDir } from '../testing/temp-dir.ts'
import { CheckpointStore, type SavedCheckpoint } from './checkpoint-store.ts'
import { temporaryPath } from './local-blobs.ts'
import { END_OF_ARCHIVE, encodeHeader, paddingAfter, type TarHeader } from './tar-header.ts'
import { receiveTar, saveTar } from './tar-in.ts'
import { workspaceTar } from './tar-out.ts'

const run = promisify(execFile)
const tenantId = 'default'
const limits = { maxBytes: 10_000_000, maxEntries: 1_000 }

async function makeSession() {
  const dir = await tempDir()
  const store = new CheckpointStore({ dir: join(dir, 'store'), sync: false })
  onTestFinished(() => store.close())
  const roots = { workspace: join(dir, 'workspace'), home: join(dir, 'home') }
  for (const root of Object.values(roots)) await mkdir(root)
  let restores = 0
  return {
    dir,
    store,
    ...roots,
    save: () =>
      store.save(
        { tenantId, roots, indexFile: join(dir, 'index'), pids: [] },
        async ({ manifest }) => manifest,
      ),
    /** Where the checkpoint was restored to. */
    async restore(manifest: string) {
      const place = join(dir, `restored-${++restores}`)
      await mkdir(place)
      const to = { workspace: join(place, 'workspace'), home: join(place, 'home') }
      const indexFile = join(place, 'index')
      await store.restore({ tenantId, manifest, roots: to, owner: undefined, indexFile })
      return to
    },
    /** Where GNU tar unpacked the archive to. */
    async unpack(manifest: string): Promise<string> {
      const file = join(dir, `${++restores}.tar`)
      const to = join(dir, `unpacked-${restores}`)
      await mkdir(to)
      await pipeline(await workspaceTar(store, tenantId, manifest), createWriteStream(file))
      await run('tar', ['-xpf', file, '-C', to])
      return to
    },
    async upload(
      bytes: Buffer,
      options: { base?: string; replace?: boolean } & Partial<typeof limits> = {},
    ): Promise<SavedCheckpoint> {
      const request = { tenantId, base: undefined, replace: false, ...limits, ...options }
      await using archive = await receiveTar(store, Readable.from([bytes]), request)
      return await saveTar(store, { ...request, archive: archive.path }, async (saved) => saved)
    },
  }
}

/** Every name with what can be seen of it. */
async function describeTree(root: string): Promise<Record<string, unknown>> {
  const tree: Record<string, unknown> = {}
  for (const name of await readdir(Buffer.from(root), { recursive: false, encoding: 'buffer' })) {
    await describeInto(tree, Buffer.from(root), name)
  }
  return tree
}

async function describeInto(tree: Record<string, unknown>, parent: Buffer, name: Buffer): Promise<void> {
  const path = Buffer.concat([parent, Buffer.from('/'), name])
  const stats = await lstat(path)
  const key = path.subarray(path.indexOf('/', 1)).toString('latin1')
  const times = { mtimeS: Math.floor(stats.mtimeMs / 1000), mode: stats.mode & 0o7777 }
  if (stats.isSymbolicLink()) tree[key] = { target: (await readlink(path, 'buffer')).toString('latin1') }
  else if (stats.isFile()) tree[key] = { ...times, content: hash('sha256', await readFile(path)) }
  else {
    tree[key] = times
    for (const child of await readdir(path, { encoding: 'buffer' })) await describeInto(tree, path, child)
  }
}

/** Without the folder in which it lies. */
async function compareTrees(left: string, right: string): Promise<void> {
  const strip = (root: string, tree: Record<string, unknown>) =>
    Object.fromEntries(
      Object.entries(tree).map(([key, value]) => [
        key.slice(key.indexOf(`/${root.split('/').at(-1)}/`)).replace(/^\/[^/]+/, ''),
        value,
      ]),
    )
  expect(strip(right, await describeTree(right))).toEqual(strip(left, await describeTree(left)))
}

const LONG = 'long-'.repeat(50).slice(0, 200)

async function fillWorkspace(workspace: string): Promise<void> {
  await mkdir(join(workspace, LONG, LONG, 'emptÿ'), { recursive: true })
  await mkdir(join(workspace, 'sub'))
  await writeFile(join(workspace, 'plain.txt'), 'plain')
  await writeFile(join(workspace, 'empty'), '')
  await writeFile(join(workspace, LONG, LONG, 'deep.txt'), 'deep')
  await writeFile(join(workspace, 'größe 💾.txt'), 'text')
  await writeFile(Buffer.concat([Buffer.from(`${workspace}/no-utf8-`), Buffer.from([0xff, 0xfe])]), 'bytes')
  await writeFile(Buffer.concat([Buffer.from(`${workspace}/sub/${LONG}`), Buffer.from([0xff])]), 'long bytes')
  await writeFile(join(workspace, 'exactly-512'), Buffer.alloc(512, 'x'))
  await writeFile(join(workspace, 'large'), Buffer.alloc(2_500_000, 'large '))
  await writeFile(join(workspace, 'holes'), Buffer.concat([Buffer.alloc(2_000_000), Buffer.from('end')]))
  await writeFile(join(workspace, 'run.sh'), '#!/bin/sh')
  await chmod(join(workspace, 'run.sh'), 0o751)
  await chmod(join(workspace, 'sub'), 0o1770)
  await symlink('../../../etc/passwd', join(workspace, 'outside'))
  await symlink(`${LONG}/${LONG}/ünd`, join(workspace, 'far'))
  await link(join(workspace, 'plain.txt'), join(workspace, 'sub', 'second name'))
  await utimes(join(workspace, 'plain.txt'), 1_500_000_000.123456, 1_500_000_000.123456)
  await utimes(join(workspace, 'empty'), 0, 0)
  await utimes(join(workspace, 'sub'), 1_400_000_000, 1_400_000_000)
}

test('tar unpacks the archive of a workspace to exactly what was saved', async () => {
  const session = await makeSession()
  await fillWorkspace(session.workspace)
  const unpacked = await session.unpack(await session.save())
  await compareTrees(session.workspace, unpacked)
  const [one, two] = [
    await lstat(join(unpacked, 'plain.txt')),
    await lstat(join(unpacked, 'sub', 'second name')),
  ]
  expect(two.ino).toBe(one.ino)
  expect(one.mtimeMs).toBeCloseTo(1_500_000_000_123.456, 2)
})

test('the archive of a workspace, uploaded again, is the same workspace', async () => {
  const session = await makeSession()
  await fillWorkspace(session.workspace)
  const archive = Buffer.concat(
    await (await workspaceTar(session.store, tenantId, await session.save())).toArray(),
  )
  for (const bytes of [archive, gzipSync(archive)]) {
    const saved = await session.upload(bytes)
    const { workspace } = await session.restore(saved.manifest)
    await compareTrees(session.workspace, workspace)
    expect(saved).toMatchObject({ files: 11, newBytes: expect.any(Number) })
  }
})

test('what GNU tar packs, in each of its formats, is unpacked exactly', async () => {
  const session = await makeSession()
  await fillWorkspace(session.workspace)
  for (const format of ['gnu', 'posix']) {
    const file = join(session.dir, `${format}.tar`)
    // The posix format has no room for names that are not UTF-8.
    const left = format === 'posix' ? ['--exclude=sub/long*', '--exclude=no-utf8*'] : []
    await run('tar', [`--format=${format}`, ...left, '-cf', file, '-C', session.workspace, '.'])
    const { workspace } = await session.restore((await session.upload(await readFile(file))).manifest)
    expect(await readFile(join(workspace, LONG, LONG, 'deep.txt'), 'utf8')).toBe('deep')
    if (format === 'gnu')
      expect((await readdir(workspace)).sort()).toEqual((await readdir(session.workspace)).sort())
    expect((await lstat(join(workspace, 'run.sh'))).mode & 0o7777).toBe(0o751)
  }
})

test('a file over 8 GiB is announced with its length', async () => {
  const size = 9 * 1024 ** 3
  const dir = await tempDir()
  const file = join(dir, 'large.tar')
  await writeFile(file, Buffer.concat([encodeHeader(header('large', { size }))]))
  const { stdout } = await run('tar', ['-tvf', file]).catch((error: { stdout: string }) => error)
  expect(stdout).toContain(String(size))
})

test('an archive is laid over what is there', async () => {
  const session = await makeSession()
  await mkdir(join(session.workspace, 'kept'))
  await writeFile(join(session.workspace, 'kept', 'file'), 'kept')
  await writeFile(join(session.workspace, 'changed'), 'old')
  await writeFile(join(session.home, 'of-home'), 'home')
  const base = await session.save()
  const archive = tar(header('changed', {}, 'new'), header('kept/added', {}, 'added'))
  const { manifest, files, bytes } = await session.upload(archive, { base })
  expect({ files, bytes }).toEqual({
    files: 4,
    bytes: 'kept'.length + 'new'.length + 'added'.length + 'home'.length,
  })
  const { workspace, home } = await session.restore(manifest)
  expect(await readFile(join(workspace, 'changed'), 'utf8')).toBe('new')
  expect((await readdir(join(workspace, 'kept'))).sort()).toEqual(['added', 'file'])
  expect(await readFile(join(home, 'of-home'), 'utf8')).toBe('home')
})

test('an archive that replaces leaves only the home', async () => {
  const session = await makeSession()
  await writeFile(join(session.workspace, 'old'), 'content of both')
  await link(join(session.workspace, 'old'), join(session.home, 'linked'))
  const base = await session.save()
  const { manifest } = await session.upload(tar(header('new', {}, 'new')), { base, replace: true })
  const { workspace, home } = await session.restore(manifest)
  expect(await readdir(workspace)).toEqual(['new'])
  expect(await readFile(join(home, 'linked'), 'utf8')).toBe('content of both')
})

test('a name that another kind of thing has is taken over, and nothing goes through a link', async () => {
  const session = await makeSession()
  const outside = join(session.dir, 'outside')
  await mkdir(outside)
  await symlink(outside, join(session.workspace, 'link'))
  await mkdir(join(session.workspace, 'folder', 'below'), { recursive: true })
  await writeFile(join(session.workspace, 'file'), 'file')
  const base = await session.save()
  const archive = tar(
    header('link/inside', {}, 'inside'),
    header('folder', {}, 'now a file'),
    header('file/now', {}, 'a folder'),
    header('later', { type: 'symlink', target: outside }),
    header('later/inside', {}, 'inside'),
  )
  const { workspace } = await session.restore((await session.upload(archive, { base })).manifest)
  expect(await readdir(outside)).toEqual([])
  expect(await readFile(join(workspace, 'link', 'inside'), 'utf8')).toBe('inside')
  expect(await readFile(join(workspace, 'later', 'inside'), 'utf8')).toBe('inside')
  expect(await readFile(join(workspace, 'folder'), 'utf8')).toBe('now a file')
  expect(await readFile(join(workspace, 'file', 'now'), 'utf8')).toBe('a folder')
})

test('of two hard links one may be replaced', async () => {
  const session = await makeSession()
  await writeFile(join(session.workspace, 'a'), 'both')
  await link(join(session.workspace, 'a'), join(session.workspace, 'b'))
  const base = await session.save()
  const archive = tar(header('a', {}, 'new'), header('c', { type: 'hardlink', target: './b' }))
  const { workspace } = await session.restore((await session.upload(archive, { base })).manifest)
  expect(await readFile(join(workspace, 'a'), 'utf8')).toBe('new')
  expect(await readFile(join(workspace, 'b'), 'utf8')).toBe('both')
  expect((await lstat(join(workspace, 'c'))).ino).toBe((await lstat(join(workspace, 'b'))).ino)
})

test.for<[string, Buffer]>([
  ['an absolute path', tar(header('/etc/passwd', {}, 'x'))],
  ['a path upwards', tar(header('../x', {}, 'x'))],
  ['a path upwards in the middle', tar(header('a/../../x', {}, 'x'))],
  ['a path with an empty part', tar(header('a//x', {}, 'x'))],
  ['a name that is too long', tar(header('n'.repeat(256), {}, 'x'))],
  ['a path that is too long', tar(header('n/'.repeat(2_100), {}, 'x'))],
  ['a hard link to nothing', tar(header('a', { type: 'hardlink', target: 'nothing' }))],
  ['a hard link out of it', tar(header('a', { type: 'hardlink', target: '../../etc/passwd' }))],
  [
    'a hard link to a folder',
    tar(header('d', { type: 'directory' }), header('a', { type: 'hardlink', target: 'd' })),
  ],
  [
    'a hard link to a link',
    tar(header('d', { type: 'symlink', target: 'x' }), header('a', { type: 'hardlink', target: 'd' })),
  ],
  ['a link to nowhere', tar(header('a', { type: 'symlink', target: '' }))],
  ['no archive at all', Buffer.from('this is no archive, but only some text'.repeat(30))],
  ['nothing', Buffer.alloc(0)],
  ['an end that is missing', tar(header('a', {}, 'x')).subarray(0, -END_OF_ARCHIVE.length)],
  ['a file that is cut off', tar(header('a', {}, 'x'.repeat(5_000))).subarray(0, 3_000)],
  ['a gzip that is cut off', gzipSync(tar(header('a', {}, 'x'))).subarray(0, 60)],
])('an archive with %s is refused, and nothing of it stays', async ([, archive]) => {
  const session = await makeSession()
  await expect(session.upload(archive)).rejects.toMatchObject({ code: 'archive_invalid' })
  expect(await readdir(temporaryPath(session.store.dir))).toEqual([])
})

test('devices and pipes are refused', async () => {
  const session = await makeSession()
  for (const type of ['block-device', 'character-device', 'fifo'] as const) {
    const packed = pack()
    packed.entry({ name: 'special', type, devmajor: 1, devminor: 3 })
    packed.finalize()
    const archive = Buffer.concat(await Array.fromAsync(packed as AsyncIterable<Uint8Array>))
    await expect(session.upload(archive)).rejects.toMatchObject({ code: 'archive_invalid' })
  }
})

test.for<[string, Buffer, Partial<typeof limits>]>([
  ['bytes', tar(header('a', {}, 'x'.repeat(600)), header('b', {}, 'x'.repeat(600))), { maxBytes: 1_000 }],
  ['zeros that take no room', gzipSync(Buffer.alloc(40_000_000)), limits],
  ['entries', tar(...Array.from({ length: 20 }, (_, index) => header(`f${index}`))), { maxEntries: 10 }],
  ['folders on the way', tar(header('a/b/c/d/e/f/g/h/i/j/k/l')), { maxEntries: 10 }],
])('an archive with too many %s is refused', async ([, archive, bounds]) => {
  const session = await makeSession()
  await expect(session.upload(archive, bounds)).rejects.toMatchObject({ code: 'payload_too_large' })
})

test('folders may lie as deep as a path can say', async () => {
  const session = await makeSession()
  const path = 'd/'.repeat(2_000)
  const archive = tar(...Array.from({ length: 50 }, (_, index) => header(`${path}${index}`, {}, 'x')))
  const { manifest, files } = await session.upload(archive, { maxEntries: 2_050 })
  expect(files).toBe(50)
  const pieces = await (await workspaceTar(session.store, tenantId, manifest)).toArray()
  expect((await session.upload(Buffer.concat(pieces), { maxEntries: 2_050 })).files).toBe(50)
})

test('set-id bits do not get in', async () => {
  const session = await makeSession()
  const { workspace } = await session.restore(
    (await session.upload(tar(header('a', { mode: 0o6755 })))).manifest,
  )
  expect((await lstat(join(workspace, 'a'))).mode & 0o7777).toBe(0o755)
})

test('an archive whose sender goes away is refused', async () => {
  const session = await makeSession()
  const archive = new Readable({ read() {} })
  archive.push(tar(header('a', {}, 'x')))
  const received = receiveTar(session.store, archive, limits)
  archive.destroy(Object.assign(new Error('aborted'), { code: 'ECONNRESET' }))
  await expect(received).rejects.toMatchObject({ code: 'archive_invalid' })
  expect(await readdir(temporaryPath(session.store.dir))).toEqual([])
})

test('a checkpoint under the archive that is not whole here is told', async () => {
  const session = await makeSession()
  const upload = session.upload(tar(header('a')), { base: 'a'.repeat(64) })
  await expect(upload).rejects.toMatchObject({ code: 'checkpoint_damaged' })
})

test('the archive of a checkpoint that does not exist is told at once', async () => {
  const session = await makeSession()
  await expect(workspaceTar(session.store, tenantId, 'a'.repeat(64))).rejects.toMatchObject({
    code: 'checkpoint_damaged',
  })
})

test('an archive that nobody reads to its end is given up', async () => {
  const session = await makeSession()
  await writeFile(join(session.workspace, 'large'), Buffer.alloc(20_000_000, 'large '))
  const archive = await workspaceTar(session.store, tenantId, await session.save())
  for await (const piece of archive) {
    expect(piece.byteLength).toBeGreaterThan(0)
    break
  }
  expect(archive.destroyed).toBe(true)
})

interface PackedHeader extends TarHeader {
  content: Buffer
}

function header(path: string, change: Partial<TarHeader> = {}, content = ''): PackedHeader {
  const size = Buffer.byteLength(content)
  const plain = { path, type: 'file', mode: 0o644, mtimeUs: 1_600_000_000_000_000, size, target: '' } as const
  return { ...plain, ...change, content: Buffer.from(content) }
}

function tar(...headers: PackedHeader[]): Buffer {
  const entries = headers.flatMap(({ content, ...rest }) => [
    encodeHeader(rest),
    content,
    paddingAfter(content.length),
  ])
  return Buffer.concat([...entries, END_OF_ARCHIVE])
}
