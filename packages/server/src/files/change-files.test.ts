import { execFileSync } from 'node:child_process'
import { symlinkSync } from 'node:fs'
import {
  chmod,
  link,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises'
import { Readable } from 'node:stream'
import { MAX_COPY_BYTES, MAX_COPY_ENTRIES } from '@ash-ai/shared'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { changeMode, copyFile, makeFolder, moveFile } from './change-files.ts'
import { receiveForm } from './receive-form.ts'
import { statFile } from './stat-file.ts'
import { HostileWorkspace } from './testing/hostile-workspace.ts'
import { compareScans, scanFiles } from './watch-files.ts'
import { writeFile as writeToWorkspace } from './write-file.ts'

let workspace: HostileWorkspace
beforeEach(async () => {
  workspace = await HostileWorkspace.create()
})
afterEach(() => workspace.remove())

const isRoot = process.getuid?.() === 0
const at = (path: string) => workspace.at(path)
const text = (path: string) => readFile(at(path), 'utf8')
const move = (from: string, to: string, overwrite = false) => moveFile(workspace, { from, to, overwrite })
const copy = (from: string, to: string, overwrite = false) => copyFile(workspace, { from, to, overwrite })
const refused = (code: string) => expect.objectContaining({ name: 'AshError', code })
const modeOf = async (path: string) => (await lstat(at(path))).mode & 0o7777
/** What an operation leaves behind when it fails: nothing of its own. */
const expectNoTemporary = async () =>
  expect((await readdir(workspace.root)).filter((name) => name.startsWith('.ash'))).toEqual([])

describe('a folder', () => {
  test('is made, alone or with those above it', async () => {
    await makeFolder(workspace, 'a', false)
    await expect(makeFolder(workspace, 'a', false)).rejects.toEqual(refused('file_exists'))
    await expect(makeFolder(workspace, 'b/c', false)).rejects.toEqual(refused('file_not_found'))
    await makeFolder(workspace, 'b/c/d', true)
    await makeFolder(workspace, 'b/c/d', true)
    expect(await readdir(workspace.root, { recursive: true })).toEqual(['a', 'b', 'b/c', 'b/c/d'])
  })

  test.runIf(isRoot)('belongs to the session', async () => {
    const owned = { root: workspace.root, owner: { uid: 234_567, gid: 234_568 } }
    await makeFolder(owned, 'x/y', true)
    await writeFile(at('f'), 'x')
    await copyFile(owned, { from: 'f', to: 'z/g', overwrite: false })
    for (const path of ['x', 'x/y', 'z', 'z/g']) expect((await lstat(at(path))).uid).toBe(234_567)
  })
})

describe('a move', () => {
  test('renames files, folders and links, making the folders it needs', async () => {
    await writeFile(at('f'), 'file')
    await mkdir(at('d/e'), { recursive: true })
    await symlink(workspace.outside, at('l'))
    await move('f', 'new/g')
    await move('d', 'new/d')
    await move('l', 'new/l')
    expect(await text('new/g')).toBe('file')
    expect(await readlink(at('new/l'))).toBe(workspace.outside)
    expect((await readdir(at('new'))).sort()).toEqual(['d', 'g', 'l'])
    await workspace.expectOutsideUntouched()
  })

  test('replaces only a file, and only when asked', async () => {
    await writeFile(at('f'), 'f')
    await writeFile(at('g'), 'g')
    await mkdir(at('d'))
    await expect(move('f', 'g')).rejects.toEqual(refused('file_exists'))
    expect(await text('g')).toBe('g')
    await move('f', 'g', true)
    expect(await text('g')).toBe('f')
    for (const [from, to] of [
      ['g', 'd'],
      ['d', 'g'],
    ] as const)
      await expect(move(from, to, true)).rejects.toEqual(refused('file_exists'))
  })

  test('replaces a link, not what it leads to', async () => {
    await writeFile(at('f'), 'f')
    await symlink(`${workspace.outside}/secret.txt`, at('l'))
    await move('f', 'l', true)
    expect((await lstat(at('l'))).isFile()).toBe(true)
    await workspace.expectOutsideUntouched()
  })

  test('of a folder into itself, or of nothing, is refused and makes no folder', async () => {
    await mkdir(at('d'))
    await expect(move('d', 'd/e')).rejects.toEqual(refused('path_invalid'))
    await expect(move('d', 'd')).rejects.toEqual(refused('path_invalid'))
    await expect(move('none', 'new/f')).rejects.toEqual(refused('file_not_found'))
    expect(await readdir(workspace.root)).toEqual(['d'])
  })
})

describe('a copy', () => {
  test('has the same content, modes and links, and none of what is no file', async () => {
    await mkdir(at('d/e'), { recursive: true })
    await writeFile(at('d/run'), 'x')
    await chmod(at('d/run'), 0o4755)
    await chmod(at('d/e'), 0o1700)
    await symlink(`${workspace.outside}/secret.txt`, at('d/link'))
    await link(at('d/run'), at('d/hard'))
    execFileSync('mkfifo', [at('d/pipe')])
    await copy('d', 'new/copy')
    expect((await readdir(at('new/copy'))).sort()).toEqual(['e', 'hard', 'link', 'run'])
    expect(await text('new/copy/run')).toBe('x')
    expect(await modeOf('new/copy/run')).toBe(0o755)
    expect(await modeOf('new/copy/e')).toBe(0o700)
    expect(await readlink(at('new/copy/link'))).toBe(`${workspace.outside}/secret.txt`)
    expect((await lstat(at('new/copy/run'))).nlink).toBe(1)
    await workspace.expectOutsideUntouched()
  })

  test('is refused over what is there, into itself, of a pipe or a device, and leaves nothing then', async () => {
    await writeFile(at('f'), 'f')
    await writeFile(at('g'), 'g')
    await mkdir(at('d'))
    execFileSync('mkfifo', [at('pipe')])
    await expect(copy('f', 'g')).rejects.toEqual(refused('file_exists'))
    await expect(copy('d', 'd/e')).rejects.toEqual(refused('path_invalid'))
    await expect(copy('f', 'd', true)).rejects.toEqual(refused('file_exists'))
    await expect(copy('pipe', 'h')).rejects.toEqual(refused('not_a_file'))
    await expect(copy('none', 'h')).rejects.toEqual(refused('file_not_found'))
    await copy('f', 'g', true)
    expect(await text('g')).toBe('f')
    await expectNoTemporary()
  })

  test('is bounded in entries, bytes and depth', async () => {
    await mkdir(at('many'))
    for (let entry = 0; entry < MAX_COPY_ENTRIES; entry++) symlinkSync('x', at(`many/${entry}`))
    await expect(copy('many', 'copy')).rejects.toEqual(refused('payload_too_large'))
    await mkdir(at(Array(70).fill('d').join('/')), { recursive: true })
    await expect(copy('d', 'copy')).rejects.toEqual(refused('payload_too_large'))
    await expectNoTemporary()
    expect((await readdir(workspace.root)).sort()).toEqual(['d', 'many'])
  }, 60_000)

  test('of more bytes than allowed is refused before it is begun', async () => {
    await writeFile(at('sparse'), '')
    await truncate(at('sparse'), MAX_COPY_BYTES + 1)
    await expect(copy('sparse', 'copy')).rejects.toEqual(refused('payload_too_large'))
    await expectNoTemporary()
  })
})

describe('permission bits', () => {
  test('are those asked for, of files and folders, also where the owner has none', async () => {
    await writeFile(at('f'), '')
    await mkdir(at('d'))
    await chmod(at('f'), 0)
    await changeMode(workspace, 'f', 0o640)
    await changeMode(workspace, 'd', 0o700)
    expect([await modeOf('f'), await modeOf('d')]).toEqual([0o640, 0o700])
  })

  test('of links, pipes and devices are left alone', async () => {
    await chmod(`${workspace.outside}/secret.txt`, 0o600)
    await symlink(`${workspace.outside}/secret.txt`, at('l'))
    execFileSync('mkfifo', [at('pipe')])
    if (isRoot) execFileSync('mknod', [at('zero'), 'c', '1', '5'])
    for (const path of isRoot ? ['l', 'pipe', 'zero'] : ['l', 'pipe'])
      await expect(changeMode(workspace, path, 0o777)).rejects.toEqual(refused('path_invalid'))
    expect((await lstat(`${workspace.outside}/secret.txt`)).mode & 0o777).toBe(0o600)
  })

  test('a write takes none that are special', async () => {
    await writeToWorkspace(workspace, 'f', [Buffer.from('x')], { maxBytes: 10, mode: 0o755 })
    expect(await modeOf('f')).toBe(0o755)
  })
})

describe('what leads out', () => {
  const links = ['folder-link/x', 'd/up/x', 'proc/self/x', 'fd/0']
  beforeEach(async () => {
    await symlink(workspace.outside, at('folder-link'))
    await mkdir(at('d'))
    await symlink('../../outside', at('d/up'))
    await symlink('/proc', at('proc'))
    await symlink('/proc/self/fd', at('fd'))
    await writeFile(at('f'), 'inside')
  })

  test.each(links)('%s: no operation goes through a link', async (path) => {
    const operations = [
      () => makeFolder(workspace, path, false),
      () => makeFolder(workspace, `${path}/y`, true),
      () => move('f', path),
      () => move(path, 'g'),
      () => copy('f', path),
      () => copy(path, 'g'),
      () => changeMode(workspace, path, 0o777),
      () => statFile(workspace, path),
    ]
    for (const work of operations) await expect(work()).rejects.toEqual(refused('path_invalid'))
    expect(await text('f')).toBe('inside')
    await expectNoTemporary()
    await workspace.expectOutsideUntouched()
  })

  test.each(['..', '../x', '/etc/passwd', 'a/../../x', 'x\0y', 'a\\b', './x', 'a//b', '', 'x'.repeat(256)])(
    '%j is no path for any operation',
    async (path) => {
      const operations = [
        () => makeFolder(workspace, path, true),
        () => move('f', path),
        () => move(path, 'g'),
        () => copy('f', path),
        () => copy(path, 'g'),
        () => changeMode(workspace, path, 0o777),
        () => statFile(workspace, path),
      ]
      for (const work of operations) await expect(work()).rejects.toEqual(refused('path_invalid'))
    },
  )

  test('names are kept as they are given, look-alikes and other forms beside each other', async () => {
    // Composed, decomposed, full-width slash, dots and one-dot leader, a name of 255 bytes, odd but allowed.
    const names = [
      'é',
      'e\u0301',
      '\uff0f',
      '\u2024\u2024',
      '．．',
      'ü'.repeat(127),
      'con',
      'NUL',
      ' ',
      '~',
      '-rf',
      '...',
    ]
    for (const name of names) await makeFolder(workspace, `names/${name}`, true)
    expect((await readdir(at('names'))).sort()).toEqual(names.toSorted())
    await expect(makeFolder(workspace, 'ü'.repeat(128), false)).rejects.toEqual(refused('path_invalid'))
  })

  test('the target of a link is told, and not looked at', async () => {
    expect(await statFile(workspace, 'folder-link')).toMatchObject({
      type: 'link',
      linkTarget: workspace.outside,
    })
    expect(await statFile(workspace, 'fd')).not.toHaveProperty('etag')
  })
})

describe('while a folder is swapped for a link all the time', () => {
  let count = 0
  const name = () => `n${count++}`

  test('mkdir makes nothing outside', () =>
    workspace.whileSwapping(() => makeFolder(workspace, `folder/${name()}/deep`, true)))

  test('move takes nothing out and brings nothing in', async () => {
    await workspace.whileSwapping(async () => {
      const target = name()
      await writeToWorkspace(workspace, target, [Buffer.from('inside')], { maxBytes: 10 })
      await move(target, `folder/${target}`)
      await move(`folder/${target}`, `${target}-back`)
      expect(await text(`${target}-back`)).toBe('inside')
    })
  })

  test('move never fetches what is outside', async () => {
    await workspace.whileSwapping(async () => {
      await writeToWorkspace(workspace, 'folder/secret.txt', [Buffer.from('inside')], { maxBytes: 10 })
      const target = name()
      await move('folder/secret.txt', target)
      expect(await text(target)).toBe('inside')
    })
  })

  test('copy neither reads nor writes outside', async () => {
    await mkdir(at('folder'))
    await writeFile(at('folder/secret.txt'), 'inside')
    await workspace.whileSwapping(async () => {
      const target = name()
      await copy('folder/secret.txt', target)
      expect(await text(target)).toBe('inside')
      await copy('folder', `${target}-folder`)
      // Of a link a copy is a link, and what that leads to was not looked at.
      if ((await lstat(at(`${target}-folder`))).isDirectory())
        expect(await text(`${target}-folder/secret.txt`)).toBe('inside')
    })
  })

  test('chmod changes nothing outside', async () => {
    await mkdir(at('folder'))
    await writeFile(at('folder/secret.txt'), 'inside')
    await chmod(`${workspace.outside}/secret.txt`, 0o600)
    await workspace.whileSwapping(() => changeMode(workspace, 'folder/secret.txt', 0o777))
    expect((await lstat(`${workspace.outside}/secret.txt`)).mode & 0o777).toBe(0o600)
  })

  test('an upload writes nothing outside', async () => {
    async function* parts() {
      yield { type: 'file', fieldname: 'f', filename: name(), file: Readable.from([Buffer.from('inside')]) }
    }
    const form = { isMultipart: () => true, parts } as unknown as Parameters<typeof receiveForm>[2]
    await workspace.whileSwapping(() => receiveForm(workspace, 'folder/sub', form))
  })

  test('a watch sees nothing outside', async () => {
    await mkdir(at('folder'))
    await writeFile(at('folder/inside.txt'), '')
    await workspace.whileSwapping(async () => {
      const { items } = await scanFiles(workspace, 'folder')
      expect([...items.keys()]).toEqual(['folder/inside.txt'])
    })
  })
})

test('two looks differ by what was made, written, replaced and deleted', async () => {
  for (const path of ['same', 'written', 'deleted', 'replaced']) await writeFile(at(path), 'x')
  await mkdir(at('d'))
  const before = await scanFiles(workspace, undefined)
  expect(compareScans(before, await scanFiles(workspace, undefined))).toEqual([])
  await writeFile(at('d/new'), 'abc')
  await writeFile(at('written'), 'xy')
  await writeToWorkspace(workspace, 'replaced', [Buffer.from('x')], { maxBytes: 10 })
  await moveFile(workspace, { from: 'deleted', to: 'moved', overwrite: false })
  const changes = compareScans(before, await scanFiles(workspace, undefined))
  expect(changes.map(({ type, path, size }) => `${type} ${path} ${size}`).sort()).toEqual([
    'changed replaced 1',
    'changed written 2',
    'created d/new 3',
    'created moved 1',
    'deleted deleted 1',
  ])
})
