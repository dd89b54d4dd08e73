import { execFile } from 'node:child_process'
import {
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
import { join } from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { copyTree, keepLayer, layerIn } from './layer.ts'
import { createSessionDirs, isSetUp, sessionDirs } from './session-dirs.ts'
import { tempDir } from './testing/temp-dir.ts'

const run = promisify(execFile)
const isRoot = process.getuid?.() === 0
const OWNER = isRoot
  ? { uid: 300_001, gid: 300_002 }
  : { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }

async function folders() {
  const dir = await tempDir()
  const from = layerIn(join(dir, 'from'))
  await mkdir(from.workspace, { recursive: true })
  await mkdir(from.home)
  return { dir, from, kept: join(dir, 'kept') }
}

/** Every path below with its kind, mode, owner and number of names. */
async function listing(folder: string): Promise<string[]> {
  const { stdout } = await run('find', [folder, '-mindepth', '1', '-printf', '%P %y %m %U:%G %n\n'])
  return stdout.trimEnd().split('\n').sort()
}

test('a layer holds folders, files and links; nothing that lends rights, and nothing special', async () => {
  const { from, kept } = await folders()
  await writeFile(join(from.workspace, 'lends'), 'x')
  await symlink('/etc/shadow', join(from.workspace, 'out'))
  await symlink(from.home, join(from.workspace, 'folder'))
  await mkdir(join(from.home, 'group'))
  await run('chmod', ['6755', join(from.workspace, 'lends'), join(from.home, 'group')])
  await run('mkfifo', [join(from.home, 'pipe')])
  if (isRoot) await run('mknod', [join(from.home, 'null'), 'c', '1', '3'])
  await run('chown', ['-R', '-h', `${OWNER.uid}:${OWNER.gid}`, from.workspace, from.home])
  await keepLayer(from, kept, 100)
  const [uid, gid] = [process.getuid?.(), process.getgid?.()]
  expect(await listing(kept)).toEqual([
    `home d 755 ${uid}:${gid} 3`,
    `home/group d 755 ${uid}:${gid} 2`,
    `size.json f 644 ${uid}:${gid} 1`,
    `workspace d 755 ${uid}:${gid} 2`,
    `workspace/folder l 777 ${uid}:${gid} 1`,
    `workspace/lends f 755 ${uid}:${gid} 1`,
    `workspace/out l 777 ${uid}:${gid} 1`,
  ])
  expect((await lstat(kept)).mode & 0o777).toBe(0o700)
})

test('what a layer takes is measured, and more than the limit makes none', async () => {
  const { from, kept } = await folders()
  await writeFile(join(from.workspace, 'a'), Buffer.alloc(3 * 1024 * 1024, 1))
  await link(join(from.workspace, 'a'), join(from.home, 'b'))
  await expect(keepLayer(from, kept, 2)).rejects.toMatchObject({ code: 'disk_full' })
  await expect(lstat(kept)).rejects.toMatchObject({ code: 'ENOENT' })
  const size = await keepLayer(from, kept, 4)
  expect(size.kilobytes).toBeGreaterThanOrEqual(3 * 1024)
  expect(size.kilobytes).toBeLessThan(4 * 1024)
  expect(size.entries).toBe(3)
  expect(JSON.parse(await readFile(join(kept, 'size.json'), 'utf8'))).toEqual(size)
})

test('more files than the limit has room for make none, however small they are', async () => {
  const { from, kept } = await folders()
  for (let count = 0; count < 64; count++) await symlink('nowhere', join(from.home, String(count)))
  await expect(keepLayer(from, kept, 1)).rejects.toMatchObject({
    code: 'disk_full',
    message: expect.stringMatching(/takes 2 MB, more than the limits\.diskMb of 1\b.*Raise/),
  })
  await expect(lstat(kept)).rejects.toMatchObject({ code: 'ENOENT' })
  expect((await keepLayer(from, kept, 2)).entries).toBe(66)
})

test('a copy keeps holes and shared files, and takes nobody’s rights or attributes along', async () => {
  const { dir, from } = await folders()
  await writeFile(join(from.workspace, 'one'), 'text')
  await link(join(from.workspace, 'one'), join(from.workspace, 'two'))
  await writeFile(join(from.workspace, 'holes'), '')
  await truncate(join(from.workspace, 'holes'), 1024 ** 3)
  await run('python3', [
    '-c',
    'import os, sys; os.setxattr(sys.argv[1], "user.note", b"x")',
    join(from.workspace, 'one'),
  ])
  const to = join(dir, 'to')
  await copyTree(from.workspace, to, OWNER)
  const [one, two, holes] = await Promise.all(['one', 'two', 'holes'].map((name) => lstat(join(to, name))))
  expect([one?.ino, one?.nlink, one?.uid, one?.gid]).toEqual([two?.ino, 2, OWNER.uid, OWNER.gid])
  expect(holes).toMatchObject({ size: 1024 ** 3, blocks: 0 })
  const { stdout } = await run('python3', [
    '-c',
    'import os, sys; print(os.listxattr(sys.argv[1]))',
    join(to, 'one'),
  ])
  expect(stdout).toBe('[]\n')
})

test('a session begins as a copy of a layer, which stays as it is', async () => {
  const { dir, from, kept } = await folders()
  await writeFile(join(from.workspace, 'made'), 'by install.sh')
  await writeFile(join(from.home, '.profile'), 'x')
  await symlink('/', join(from.home, 'root'))
  await keepLayer(from, kept, 100)
  const dirs = sessionDirs(dir, 'session-1')
  await createSessionDirs(dirs, layerIn(kept), OWNER)
  expect(await isSetUp(dirs)).toBe(true)
  expect((await readdir(dirs.disk)).sort()).toEqual(['home', 'workspace'])
  expect(await readlink(join(dirs.home, 'root'))).toBe('/')
  for (const path of [dirs.workspace, dirs.home, join(dirs.workspace, 'made'), join(dirs.home, 'root')]) {
    const { uid, gid } = await lstat(path)
    expect({ uid, gid }, path).toEqual(OWNER)
  }
  for (const path of [dirs.workspace, dirs.home]) expect((await lstat(path)).mode & 0o777).toBe(0o700)
  await writeFile(join(dirs.workspace, 'made'), 'changed')
  await createSessionDirs(dirs, layerIn(kept), OWNER)
  expect(await readFile(join(dirs.workspace, 'made'), 'utf8')).toBe('changed')
  expect(await readFile(join(kept, 'workspace', 'made'), 'utf8')).toBe('by install.sh')
})

test('a session whose copy broke off is begun anew', async () => {
  const { dir, from, kept } = await folders()
  await writeFile(join(from.workspace, 'made'), 'x')
  await keepLayer(from, kept, 100)
  const dirs = sessionDirs(dir, 'session-1')
  await mkdir(join(dirs.home, 'stale'), { recursive: true })
  await mkdir(join(dirs.disk, '.workspace', 'half'), { recursive: true })
  const gone = { ...layerIn(kept), workspace: join(dir, 'none') }
  await expect(createSessionDirs(dirs, gone, OWNER)).rejects.toThrow(/No such file/)
  expect([await readdir(dirs.disk), await isSetUp(dirs)]).toEqual([['home'], false])
  await createSessionDirs(dirs, layerIn(kept), OWNER)
  expect([await readdir(dirs.home), await readdir(dirs.workspace)]).toEqual([[], ['made']])
})
