import { zstdCompressSync } from 'node:zlib'
import { expect, test } from 'vitest'
import { comparePaths } from './entry-path.ts'
import { blobsOf, decodeManifest, encodeManifest } from './manifest.ts'
import { CHUNK_BYTES, type Entry, type Manifest } from './manifest-entry.ts'

const HASH = 'ab'.repeat(32)
const OTHER = 'cd'.repeat(32)
const root: Entry = { type: 'directory', path: '', mode: 0o755, mtimeUs: 1 }
const folder = (path: string): Entry => ({ type: 'directory', path, mode: 0o700, mtimeUs: -5 })
const file = (path: string, size = 3, chunks: (string | number)[] = [HASH]): Entry => ({
  type: 'file',
  path,
  mode: 0o644,
  mtimeUs: 1_700_000_000_123_456,
  size,
  chunks,
})
const manifest: Manifest = {
  workspace: [
    root,
    folder('a'),
    file('a/b'),
    file('a.txt', 5 * CHUNK_BYTES - 10, [HASH, 3, OTHER]),
    { type: 'link', path: 'l', mtimeUs: 0, target: '/etc/passwd' },
    { type: 'hardlink', path: 'x\xff', root: 'workspace', of: 'a/b' },
  ],
  home: [root, { type: 'hardlink', path: 'h', root: 'workspace', of: 'a/b' }],
}

const encode = (value: unknown) => zstdCompressSync(JSON.stringify(value))

test('a manifest comes back as it was, and the same files give the same bytes', () => {
  const encoded = encodeManifest(manifest)
  expect(decodeManifest(encoded.bytes)).toEqual(manifest)
  const shuffled = manifest.workspace.map((entry) => Object.fromEntries(Object.entries(entry).reverse()))
  const again = encodeManifest({ workspace: shuffled as unknown as Entry[], home: manifest.home })
  expect(again).toEqual(encoded)
})

test('every blob is named once, with its length', () => {
  expect([...blobsOf(manifest)]).toEqual([
    [HASH, CHUNK_BYTES],
    [OTHER, CHUNK_BYTES - 10],
  ])
})

test('a folder comes before its content, and its content before its neighbours', () => {
  const paths = ['a', 'a/b', 'a/b/c', 'a\n', 'a b', 'a.txt', 'aa', 'a\xff']
  expect(paths.toReversed().sort(comparePaths)).toEqual(paths)
})

const wrong: Record<string, Entry[] | unknown> = {
  'no root': [],
  'a root that is a file': [{ ...file('x'), path: '' }],
  'a path that leads up': [root, file('../x')],
  'a path that leads up in the middle': [root, folder('a'), file('a/../x')],
  'an absolute path': [root, file('/etc/passwd')],
  'an empty name': [root, folder('a'), file('a//b')],
  'a dot': [root, file('.')],
  'a NUL': [root, file('a\0')],
  'a character that is no byte': [root, file('日')],
  'a name that is too long': [root, file('x'.repeat(256))],
  'a path that is too long': [root, file('x/'.repeat(2500))],
  'a file in a file': [root, file('a'), file('a/b')],
  'a file in a link': [root, { type: 'link', path: 'a', mtimeUs: 0, target: '/' }, file('a/b')],
  'a file in no folder': [root, file('a/b')],
  'the same path twice': [root, file('a'), file('a')],
  'the wrong order': [root, file('b'), file('a')],
  'the root again': [root, root],
  'a set-id bit': [root, { ...file('a'), mode: 0o4755 }],
  'a mode that is text': [root, { ...file('a'), mode: '0644' }],
  'a time that is no number': [root, { ...file('a'), mtimeUs: null }],
  'a negative size': [root, file('a', -1, [])],
  'a size that is no integer': [root, file('a', 0.5, [])],
  'more content than size': [root, file('a', CHUNK_BYTES, [HASH, OTHER])],
  'a hole past the end': [root, file('a', 10, [5, HASH])],
  'a hole at the end': [root, file('a', 2 * CHUNK_BYTES, [HASH, 1])],
  'a hole of no length': [root, file('a', 2 * CHUNK_BYTES, [0, HASH])],
  'two holes in a row': [root, file('a', 3 * CHUNK_BYTES, [1, 1, HASH])],
  'a hash that is a path': [root, file('a', 3, ['../../etc/passwd'])],
  'a hash in capitals': [root, file('a', 3, [HASH.toUpperCase()])],
  'a link to nothing': [root, { type: 'link', path: 'a', mtimeUs: 0, target: '' }],
  'a hard link to no file': [root, { type: 'hardlink', path: 'a', root: 'workspace', of: '/etc/passwd' }],
  'a hard link to a later root': [root, { type: 'hardlink', path: 'a', root: 'home', of: 'h' }],
  'a hard link to a strange root': [root, { type: 'hardlink', path: 'a', root: '__proto__', of: 'h' }],
  'a device': [root, { type: 'device', path: 'a' }],
  'an entry that is null': [root, null],
  'no list': { 0: root },
}

test.each(Object.keys(wrong))('a manifest with %s is refused', (name) => {
  expect(() => decodeManifest(encode({ version: 1, workspace: wrong[name], home: [root] }))).toThrow(
    /workspace/,
  )
})

test('bytes that are no manifest are refused', () => {
  expect(() => decodeManifest(Buffer.from('no zstd'))).toThrow()
  expect(() => decodeManifest(zstdCompressSync('no JSON'))).toThrow()
  expect(() => decodeManifest(encode(null))).toThrow('not an object')
  expect(() => decodeManifest(encode({ ...manifest, version: 2 }))).toThrow('version')
  const { bytes } = encodeManifest(manifest)
  expect(() => decodeManifest(bytes.subarray(0, bytes.length - 5))).toThrow()
})
