import { execFileSync } from 'node:child_process'
import {
  chmod,
  link,
  mkdir,
  readdir,
  readlink,
  rm,
  stat,
  symlink,
  writeFile as write,
} from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { isRelativePath } from '@ash-ai/shared'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { deleteFile } from './delete-file.ts'
import { listFiles } from './list-files.ts'
import { openFile, readText } from './read-file.ts'
import { HostileWorkspace } from './testing/hostile-workspace.ts'
import type { Workspace } from './workspace-folder.ts'
import { checkWritable, writeFile } from './write-file.ts'

let hostile: HostileWorkspace
let outside: string
let workspace: Workspace
const isRoot = process.getuid?.() === 0

beforeEach(async () => {
  hostile = await HostileWorkspace.create()
  outside = hostile.outside
  workspace = { root: hostile.root }
})
afterEach(() => hostile.remove())

const at = (path: string) => join(workspace.root, path)
const put = (path: string, text: string, maxBytes = 1000) =>
  writeFile(workspace, path, [Buffer.from(text)], { maxBytes })
const read = (path: string) => readText(workspace, path, 1000)
const list = async (path?: string, limit = 1000) =>
  (await listFiles(workspace, { limit, ...(path !== undefined && { path }) })).files.map((file) => file.path)
const refused = (code: string) => expect.objectContaining({ name: 'AshError', code })

const expectOutsideUntouched = () => hostile.expectOutsideUntouched()

describe('plain use', () => {
  test('what is written can be listed, read and deleted', async () => {
    expect(await put('a/b/c.txt', 'text')).toMatchObject({ size: 4 })
    expect(await read('a/b/c.txt')).toBe('text')
    expect(await list()).toEqual(['a', 'a/b', 'a/b/c.txt'])
    await deleteFile(workspace, 'a/b/c.txt')
    expect(await list()).toEqual(['a', 'a/b'])
    await deleteFile(workspace, 'a')
    expect(await list()).toEqual([])
  })

  test('writing replaces the whole file and leaves nothing beside it', async () => {
    await put('f', 'a long first text')
    await put('f', 'short')
    expect(await read('f')).toBe('short')
    expect(await readdir(workspace.root)).toEqual(['f'])
  })

  test('a reader that has the old file open keeps it', async () => {
    await put('f', 'old')
    const file = await openFile(workspace, 'f')
    await put('f', 'new')
    expect(Buffer.concat(await file.stream().toArray()).toString()).toBe('old')
  })

  test('modes are plain, whatever the umask, and execution is kept', async () => {
    const before = process.umask(0o077)
    try {
      await writeFile(workspace, 'd/run', [Buffer.from('x')], { maxBytes: 10, executable: true })
      await put('d/plain', 'x')
    } finally {
      process.umask(before)
    }
    await put('d/run', 'y')
    const mode = async (path: string) => (await stat(at(path))).mode & 0o777
    expect(await Promise.all(['d', 'd/run', 'd/plain'].map(mode))).toEqual([0o755, 0o755, 0o644])
  })

  test.runIf(isRoot)(
    'files and new folders belong to the session, old folders stay as they are',
    async () => {
      await mkdir(at('mine'))
      workspace = { ...workspace, owner: { uid: 234_567, gid: 234_568 } }
      await put('mine/new/file', 'x')
      const owner = async (path: string) => {
        const { uid, gid } = await stat(at(path))
        return [uid, gid]
      }
      expect(await owner('mine')).toEqual([0, 0])
      expect(await owner('mine/new')).toEqual([234_567, 234_568])
      expect(await owner('mine/new/file')).toEqual([234_567, 234_568])
    },
  )

  test('a listing tells size, time and type, in order', async () => {
    await put('b', '12345')
    await put('a/z', '')
    await put('a.txt', '')
    await symlink('b', at('l'))
    execFileSync('mkfifo', [at('p')])
    const { files, truncated } = await listFiles(workspace, { limit: 100 })
    expect(files.map(({ path, type, size }) => [path, type, type === 'directory' ? 0 : size])).toEqual([
      ['a', 'directory', 0],
      ['a/z', 'file', 0],
      ['a.txt', 'file', 0],
      ['b', 'file', 5],
      ['l', 'link', 1],
      ['p', 'other', 0],
    ])
    expect(truncated).toBe(false)
    expect(Date.now() - Date.parse(files[0]?.modifiedAt ?? '')).toBeLessThan(60_000)
    expect(await list('a')).toEqual(['a/z'])
  })
})

describe('limits', () => {
  test('a file may be as long as allowed and not a byte longer', async () => {
    expect(await put('f', '12345', 5)).toMatchObject({ size: 5 })
    await expect(put('new/folder/f', '123456', 5)).rejects.toEqual(refused('payload_too_large'))
    await expect(put('f', '123456', 5)).rejects.toEqual(refused('payload_too_large'))
    expect(await list()).toEqual(['f'])
    expect(await read('f')).toBe('12345')
  })

  test('a source that breaks off changes nothing', async () => {
    await put('f', 'kept')
    async function* broken() {
      yield Buffer.from('half')
      throw new Error('connection lost')
    }
    await expect(writeFile(workspace, 'f', broken(), { maxBytes: 100 })).rejects.toThrow('connection lost')
    expect(await read('f')).toBe('kept')
    expect(await readdir(workspace.root)).toEqual(['f'])
  })

  test('text is read up to the limit, and only if it is text', async () => {
    await put('f', 'x'.repeat(1000))
    expect(await read('f')).toHaveLength(1000)
    await put('f', 'x'.repeat(1001), 2000)
    await expect(read('f')).rejects.toEqual(refused('payload_too_large'))
    await write(at('binary'), Buffer.from([0xff, 0xfe, 0]))
    await expect(read('binary')).rejects.toEqual(refused('not_a_file'))
    await put('empty', '')
    expect(await read('empty')).toBe('')
  })

  test('a wide folder is cut at the limit', async () => {
    await Promise.all(Array.from({ length: 300 }, (_, n) => write(at(`f${String(n).padStart(3, '0')}`), '')))
    const { files, truncated } = await listFiles(workspace, { limit: 10 })
    expect([files.length, files[9]?.path, truncated]).toEqual([10, 'f009', true])
    expect(await listFiles(workspace, { limit: 300 })).toMatchObject({ truncated: false })
    expect((await listFiles(workspace, { limit: 299 })).truncated).toBe(true)
  })

  test('a very deep tree is listed in part, and deleted whole', async () => {
    // Deeper than any path may be long, so made as an agent would: one step at a time.
    const script = 'for (let n = 0; n < 1000; n++) { fs.mkdirSync("d"); process.chdir("d") }'
    execFileSync(process.execPath, ['-e', script], { cwd: workspace.root })
    const { files, truncated } = await listFiles(workspace, { limit: 10_000 })
    expect([files.length, truncated]).toEqual([100, true])
    await deleteFile(workspace, 'd')
    expect(await list()).toEqual([])
  })

  test('names that are not UTF-8 are listed and deleted', async () => {
    await mkdir(at('d'))
    await write(Buffer.concat([Buffer.from(`${at('d')}/`), Buffer.from([0x66, 0xff])]), '')
    expect(await list()).toEqual(['d', 'd/f\uFFFD'])
    await deleteFile(workspace, 'd')
    expect(await list()).toEqual([])
  })

  test('no descriptor stays open', async () => {
    await put('a/b/f', 'x')
    await symlink(outside, at('l'))
    const count = async () => (await readdir('/proc/self/fd')).length
    const before = await count()
    for (let round = 0; round < 20; round++) {
      await put('a/b/g', 'y')
      await read('a/b/f')
      await list()
      await deleteFile(workspace, 'a/b/g')
      for (const path of ['l/secret.txt', 'a/none', 'a/b/f/g', 'l', '../x']) {
        await Promise.allSettled([read(path), put(path, 'x'), list(path), deleteFile(workspace, `${path}/x`)])
      }
    }
    expect(await count()).toBe(before)
  })
})

const BAD_PATHS = [
  '',
  '.',
  '..',
  '/',
  '/etc/passwd',
  '../outside/secret.txt',
  'a/../../outside/secret.txt',
  'a/..',
  './a',
  'a//b',
  'a/',
  'a\0b',
  'a\\b',
]

describe('paths that lead out', () => {
  test.each(BAD_PATHS)('%j is refused by every operation', async (path) => {
    const error = refused('path_invalid')
    await expect(read(path)).rejects.toEqual(error)
    await expect(put(path, 'x')).rejects.toEqual(error)
    await expect(checkWritable(workspace, path)).rejects.toEqual(error)
    await expect(deleteFile(workspace, path)).rejects.toEqual(error)
    await expect(list(path)).rejects.toEqual(error)
    await expectOutsideUntouched()
    expect(await readdir(workspace.root)).toEqual([])
  })

  test('paths and names that are too long are refused', async () => {
    for (const path of ['x'.repeat(256), `${'x/'.repeat(512)}x`]) {
      await expect(put(path, 'x')).rejects.toEqual(refused('path_invalid'))
    }
    // 255 characters of two bytes each: for the file system to refuse.
    await expect(put('ü'.repeat(255), 'x')).rejects.toEqual(refused('path_invalid'))
    expect(await readdir(workspace.root)).toEqual([])
  })

  test('whatever the path, nothing outside is touched', async () => {
    const part = fc.oneof(
      fc.constantFrom('..', '.', '', 'outside', 'secret.txt', 'l', 'd'),
      fc.string({ maxLength: 4 }),
    )
    const paths = fc.array(part, { maxLength: 5 }).map((parts) => parts.join('/'))
    await symlink(outside, at('l'))
    await fc.assert(
      fc.asyncProperty(paths, async (path) => {
        const outcomes = await Promise.allSettled([put(path, 'x'), read(path), deleteFile(workspace, path)])
        if (!isRelativePath(path)) {
          expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
        }
        await rm(at('l'), { recursive: true, force: true })
        await symlink(outside, at('l'))
      }),
      { numRuns: 150 },
    )
    await expectOutsideUntouched()
  })
})

describe('links', () => {
  beforeEach(async () => {
    await symlink(outside, at('folder-link'))
    await symlink(join(outside, 'secret.txt'), at('file-link'))
    await symlink('nowhere', at('dangling'))
    await symlink('loop', at('loop'))
    await mkdir(at('d'))
    await symlink('../../outside', at('d/up'))
  })

  test.each([
    'file-link',
    'dangling',
    'loop',
    'folder-link/secret.txt',
    'folder-link/sub/deep.txt',
    'd/up/secret.txt',
    'dangling/x',
  ])('%s is neither read nor written', async (path) => {
    await expect(read(path)).rejects.toEqual(refused('path_invalid'))
    await expect(put(path, 'x')).rejects.toEqual(refused('path_invalid'))
    await expectOutsideUntouched()
    expect((await readdir(workspace.root)).filter((name) => name.startsWith('.ash'))).toEqual([])
  })

  test('nothing is created or deleted behind a link', async () => {
    for (const path of ['folder-link/new', 'folder-link/new/er', 'd/up/new', 'folder-link/secret.txt']) {
      await expect(put(path, 'x')).rejects.toEqual(refused('path_invalid'))
      await expect(deleteFile(workspace, path)).rejects.toEqual(refused('path_invalid'))
    }
    await expectOutsideUntouched()
  })

  test('a listing shows links and does not look behind them', async () => {
    expect(await list()).toEqual(['d', 'd/up', 'dangling', 'file-link', 'folder-link', 'loop'])
    await expect(list('folder-link')).rejects.toEqual(refused('path_invalid'))
    await expect(list('folder-link/sub')).rejects.toEqual(refused('path_invalid'))
  })

  test('deleting removes the link itself', async () => {
    for (const name of ['file-link', 'folder-link', 'dangling', 'loop']) await deleteFile(workspace, name)
    expect(await list()).toEqual(['d', 'd/up'])
    await deleteFile(workspace, 'd')
    expect(await list()).toEqual([])
    await expectOutsideUntouched()
  })

  test('a hard link is replaced, not written through', async () => {
    await link(join(outside, 'secret.txt'), at('hard'))
    await put('hard', 'changed')
    expect(await read('hard')).toBe('changed')
    await expectOutsideUntouched()
  })

  test('the root itself may not be a link', async () => {
    workspace = { root: at('folder-link') }
    await expect(list()).rejects.toThrow()
    await expect(put('x', 'x')).rejects.toThrow()
    expect(await readlink(workspace.root)).toBe(outside)
    await expectOutsideUntouched()
  })
})

describe('what is not a file', () => {
  test('a folder', async () => {
    await put('d/f', 'x')
    await expect(read('d')).rejects.toEqual(refused('not_a_file'))
    await expect(put('d', 'x')).rejects.toEqual(refused('not_a_file'))
    await expect(read('d/f/g')).rejects.toEqual(refused('path_invalid'))
    await expect(put('d/f/g', 'x')).rejects.toEqual(refused('path_invalid'))
    await expect(list('d/f')).rejects.toEqual(refused('path_invalid'))
  })

  test('a pipe hangs nobody', async () => {
    execFileSync('mkfifo', [at('pipe')])
    await expect(read('pipe')).rejects.toEqual(refused('not_a_file'))
    await expect(put('pipe', 'x')).rejects.toEqual(refused('not_a_file'))
    await deleteFile(workspace, 'pipe')
    expect(await list()).toEqual([])
  })

  test('a socket', async () => {
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(at('socket'), resolve))
    await expect(read('socket')).rejects.toEqual(refused('not_a_file'))
    await expect(put('socket', 'x')).rejects.toEqual(refused('not_a_file'))
    await new Promise((resolve) => server.close(resolve))
  })

  test.runIf(isRoot)('a device', async () => {
    execFileSync('mknod', [at('zero'), 'c', '1', '5'])
    await expect(read('zero')).rejects.toEqual(refused('not_a_file'))
    await expect(put('zero', 'x')).rejects.toEqual(refused('not_a_file'))
  })

  test('what does not exist', async () => {
    await expect(read('none')).rejects.toEqual(refused('file_not_found'))
    await expect(read('none/none')).rejects.toEqual(refused('file_not_found'))
    await expect(deleteFile(workspace, 'none')).rejects.toEqual(refused('file_not_found'))
    await expect(list('none')).rejects.toEqual(refused('file_not_found'))
  })

  test('a file the owner has locked away', async () => {
    await put('f', 'x')
    await chmod(at('f'), 0)
    const outcome = isRoot ? await read('f') : await read('f').catch((error: unknown) => error)
    expect(outcome).toEqual(isRoot ? 'x' : refused('path_invalid'))
    await put('f', 'y')
  })
})

describe('a folder that is swapped for a link all the time', () => {
  const whileSwapping = (work: () => Promise<unknown>) => hostile.whileSwapping(work)

  test('reading never shows what is outside', async () => {
    await mkdir(at('folder'))
    await write(at('folder/secret.txt'), 'inside')
    await whileSwapping(async () => expect(await read('folder/secret.txt')).toBe('inside'))
  })

  test('writing never changes what is outside', async () => {
    await whileSwapping(() => put('folder/sub/deep.txt', 'inside'))
  })

  test('deleting never removes what is outside', async () => {
    await whileSwapping(async () => {
      await put('folder/sub/x', 'x')
      await deleteFile(workspace, 'folder/sub')
    })
  })

  test('a listing never shows what is outside', async () => {
    await mkdir(at('folder'))
    await write(at('folder/inside.txt'), '')
    await whileSwapping(async () => expect(await list('folder')).toEqual(['folder/inside.txt']))
  })
})
