import { execFile, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import {
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { beforeEach, expect, onTestFinished, test } from 'vitest'
import { tempDir } from '../testing/temp-dir.ts'
import { collectArtifacts, scanFiles } from './artifacts.ts'
import type { FileScan } from './walk-files.ts'

const run = promisify(execFile)

let dir: string
let to: string
beforeEach(async () => {
  const base = await tempDir()
  dir = join(base, 'workspace')
  to = join(base, 'artifacts')
  await mkdir(dir)
})

const put = async (path: string, content: string | Buffer) => {
  await mkdir(join(dir, path, '..'), { recursive: true })
  await writeFile(join(dir, path), content)
}
const pathsOf = ({ artifacts }: { artifacts: { path: string }[] }) => artifacts.map(({ path }) => path)
const EMPTY: FileScan = { files: new Map(), isComplete: true }

test('what is new or changed is copied, with size, type and checksum; the rest is not', async () => {
  await put('same.txt', 'same')
  await put('changed.json', '{"a":1}')
  await put('replaced.bin', 'old')
  const before = await scanFiles(dir)
  await put('changed.json', '{"a":2}')
  await put('new/plot.PNG', 'png')
  await writeFile(join(dir, '.next'), 'new')
  await rename(join(dir, '.next'), join(dir, 'replaced.bin'))
  const collected = await collectArtifacts({ dir, before, to })
  const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')
  expect(collected).toEqual({
    isComplete: true,
    artifacts: [
      { path: 'changed.json', size: 7, mimeType: 'application/json', sha256: sha256('{"a":2}'), stored: '0' },
      { path: 'new/plot.PNG', size: 3, mimeType: 'image/png', sha256: sha256('png'), stored: '1' },
      {
        path: 'replaced.bin',
        size: 3,
        mimeType: 'application/octet-stream',
        sha256: sha256('new'),
        stored: '2',
      },
    ],
  })
  expect(await readFile(join(to, '1'), 'utf8')).toBe('png')
  expect((await stat(join(to, '1'))).mode & 0o777).toBe(0o600)
})

test('a change that hides its time is seen', async () => {
  await put('log.txt', 'aaaa')
  const { mtime } = await stat(join(dir, 'log.txt'))
  const before = await scanFiles(dir)
  await writeFile(join(dir, 'log.txt'), 'bbbb')
  await utimes(join(dir, 'log.txt'), mtime, mtime)
  expect(pathsOf(await collectArtifacts({ dir, before, to }))).toEqual(['log.txt'])
})

test('nothing changed: nothing is written', async () => {
  await put('same.txt', 'same')
  const before = await scanFiles(dir)
  expect(await collectArtifacts({ dir, before, to })).toEqual({ artifacts: [], isComplete: true })
  await expect(readdir(to)).rejects.toThrow('ENOENT')
})

test('hidden files, links, pipes, sockets and the folders of tools are left out', async () => {
  await put('.hidden', 'x')
  await put('.cache/file', 'x')
  await put('node_modules/a/index.js', 'x')
  await put('pkg/__pycache__/a.pyc', 'x')
  await put('pkg/a.py', 'x')
  await symlink('/etc/passwd', join(dir, 'link'))
  await symlink('/etc', join(dir, 'folder'))
  await run('mkfifo', [join(dir, 'fifo')])
  const collected = await collectArtifacts({ dir, before: EMPTY, to })
  expect(pathsOf(collected)).toEqual(['pkg/a.py'])
  expect(collected.isComplete).toBe(true)
})

test('a name that is no text, or holds control characters, is left out, and that is told', async () => {
  await put('täst 日本.txt', 'x')
  await writeFile(join(dir, 'a\nb'), 'x')
  await writeFile(Buffer.concat([Buffer.from(`${dir}/`), Buffer.from([0xff, 0xfe])]), 'x')
  const collected = await collectArtifacts({ dir, before: EMPTY, to })
  expect(pathsOf(collected)).toEqual(['täst 日本.txt'])
  expect(collected.isComplete).toBe(false)
})

test('more files than are kept: as many as that, and that there are more', async () => {
  for (let n = 0; n < 300; n++) await put(`out/${String(n).padStart(3, '0')}.txt`, `file ${n}`)
  const collected = await collectArtifacts({ dir, before: EMPTY, to })
  expect(collected.artifacts).toHaveLength(200)
  expect(collected.isComplete).toBe(false)
  expect(await readFile(join(to, '199'), 'utf8')).toBe('file 199')
  expect(await readdir(to)).toHaveLength(200)
})

test('a file larger than there is room for is listed and not copied; smaller ones after it are', async () => {
  await put('huge.bin', '')
  await truncate(join(dir, 'huge.bin'), 10 * 1024 ** 3)
  await put('small.txt', 'x')
  const startedMs = performance.now()
  const collected = await collectArtifacts({ dir, before: EMPTY, to })
  expect(performance.now() - startedMs).toBeLessThan(5_000)
  expect(collected.artifacts).toEqual([
    { path: 'huge.bin', size: 10 * 1024 ** 3, mimeType: 'application/octet-stream' },
    expect.objectContaining({ path: 'small.txt', stored: '1' }),
  ])
  expect(await readdir(to)).toEqual(['1'])
})

test('the room counts for all files together', async () => {
  await put('a.bin', Buffer.alloc(600))
  await put('b.bin', Buffer.alloc(600))
  await put('c.bin', Buffer.alloc(300))
  const { artifacts } = await collectArtifacts({ dir, before: EMPTY, to, maxBytes: 1000 })
  expect(artifacts.map(({ stored }) => stored)).toEqual(['0', undefined, '2'])
})

test('megabytes come out as they went in', async () => {
  const content = Buffer.alloc(5 * 1024 * 1024 + 7, 'abc')
  await put('big.bin', content)
  const { artifacts } = await collectArtifacts({ dir, before: EMPTY, to })
  expect(artifacts[0]?.sha256).toBe(createHash('sha256').update(content).digest('hex'))
  expect(content.equals(await readFile(join(to, '0')))).toBe(true)
})

test('a tree that is too deep, or too large, is looked at as far as allowed', async () => {
  await put(`${'d/'.repeat(40)}deep.txt`, 'x')
  await put('top.txt', 'x')
  const scan = await scanFiles(dir)
  expect([...scan.files.keys()]).toEqual(['top.txt'])
  expect(scan.isComplete).toBe(false)
  // In memory: so many files take a disk a while.
  const crowded = await mkdtemp('/dev/shm/ash-artifacts-')
  onTestFinished(() => rm(crowded, { recursive: true, force: true }))
  await run('bash', ['-c', 'cd "$1" && seq 1 21000 | xargs touch', 'bash', crowded])
  const many = await scanFiles(crowded)
  expect(many.isComplete).toBe(false)
  expect(many.files.size).toBeLessThanOrEqual(20_000)
})

test('files swapped for links meanwhile never lead out of the workspace', async () => {
  const secretDir = join(dir, '..', 'secrets')
  await mkdir(secretDir)
  await writeFile(join(secretDir, 'file.txt'), 'SECRET of the host')
  await put('report', 'harmless')
  await put('folder/file.txt', 'harmless')
  await symlink(join(secretDir, 'file.txt'), join(dir, '.report-link'))
  await symlink(secretDir, join(dir, '.folder-link'))
  const script = fileURLToPath(new URL('./testing/swap-names.ts', import.meta.url))
  const swapping = spawn(process.execPath, [script, dir, '2000'], { stdio: 'ignore' })
  const ended = once(swapping, 'exit')
  onTestFinished(() => void swapping.kill('SIGKILL'))
  let copied = 0
  while (swapping.exitCode === null && swapping.signalCode === null) {
    const { artifacts } = await collectArtifacts({ dir, before: EMPTY, to })
    for (const { path, stored } of artifacts) {
      expect(await readFile(join(to, stored ?? ''), 'utf8'), path).toBe('harmless')
      copied++
    }
    await scanFiles(dir)
    await new Promise(setImmediate)
  }
  expect((await ended)[0]).toBe(0)
  expect(copied).toBeGreaterThan(10)
})

test('a small workspace takes next to no time', async () => {
  for (let n = 0; n < 20; n++) await put(`src/${n}.txt`, `file ${n}`)
  const before = await scanFiles(dir)
  await put('result.csv', 'a,b\n1,2\n')
  const times: number[] = []
  for (let round = 0; round < 20; round++) {
    const startedMs = performance.now()
    await scanFiles(dir)
    await collectArtifacts({ dir, before, to })
    times.push(performance.now() - startedMs)
  }
  expect(Math.min(...times)).toBeLessThan(5)
})
