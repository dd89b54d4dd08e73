import { mkdir, symlink, writeFile } from 'node:fs/promises'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { FileSource } from './checkpoint-files.ts'
import { listFiles } from './list-files.ts'
import { searchFiles } from './search-files.ts'
import { FilesInMemory } from './testing/files-in-memory.ts'
import { HostileWorkspace } from './testing/hostile-workspace.ts'

let workspace: HostileWorkspace
beforeEach(async () => {
  workspace = await HostileWorkspace.create()
})
afterEach(() => workspace.remove())

const CONTENTS = {
  'a/b/c.txt': '',
  'a/b.txt': '',
  'a/z.txt': '',
  'a.txt': '',
  'b/ü.txt': '',
  'b/x/y/z.txt': '',
  'c.txt': '',
}
const modifiedAt = new Date('2026-01-02T03:04:05Z')

async function fill(): Promise<void> {
  for (const path of Object.keys(CONTENTS)) {
    await mkdir(workspace.at(`${path}/..`), { recursive: true })
    await writeFile(workspace.at(path), '')
  }
}

/** All pages, each of `limit`. */
async function pages(
  source: FileSource,
  limit: number,
  options: { path?: string; recursive?: boolean } = {},
) {
  const paths: string[] = []
  let cursor: string | undefined
  do {
    const page = await listFiles(source, { ...options, limit, cursor })
    expect(page.files.length).toBeLessThanOrEqual(limit)
    expect(page.truncated).toBe(page.nextCursor !== undefined)
    paths.push(...page.files.map(({ path }) => path))
    cursor = page.nextCursor
  } while (cursor !== undefined)
  return paths
}

test.each([1, 2, 3, 5, 100])(
  'pages of %i give everything once, in order, live or from a checkpoint',
  async (limit) => {
    await fill()
    const checkpoint = { checkpoint: new FilesInMemory(CONTENTS, modifiedAt) }
    const whole = await pages(workspace, 1000)
    expect(whole).toHaveLength(12)
    expect(await pages(workspace, limit)).toEqual(whole)
    expect((await pages(checkpoint, limit)).sort()).toEqual(whole.toSorted())
    expect(await pages(workspace, limit, { path: 'b' })).toEqual(['b/x', 'b/x/y', 'b/x/y/z.txt', 'b/ü.txt'])
    expect(await pages(workspace, limit, { recursive: false })).toEqual(['a', 'a.txt', 'b', 'c.txt'])
    expect(await pages(checkpoint, limit, { recursive: false })).toEqual(['a', 'a.txt', 'b', 'c.txt'])
    expect(await pages(workspace, limit, { path: 'a', recursive: false })).toEqual([
      'a/b',
      'a/b.txt',
      'a/z.txt',
    ])
  },
)

test('a page goes on where the last ended, whatever was added or removed meanwhile', async () => {
  await fill()
  const first = await listFiles(workspace, { limit: 3 })
  expect(first.files.map(({ path }) => path)).toEqual(['a', 'a/b', 'a/b/c.txt'])
  await writeFile(workspace.at('a/a.txt'), '')
  await writeFile(workspace.at('a/b/d.txt'), '')
  const second = await listFiles(workspace, { limit: 2, cursor: first.nextCursor })
  expect(second.files.map(({ path }) => path)).toEqual(['a/b/d.txt', 'a/b.txt'])
})

test('a cursor of another folder is refused, any other text is only a place in the order', async () => {
  await fill()
  const { nextCursor } = await listFiles(workspace, { limit: 1, path: 'b' })
  await expect(listFiles(workspace, { limit: 1, path: 'a', cursor: nextCursor })).rejects.toMatchObject({
    code: 'validation_failed',
  })
  const cursor = Buffer.from('../../etc').toString('base64url')
  expect((await listFiles(workspace, { limit: 1, cursor })).files[0]?.path).toBe('a')
})

test('names that are not UTF-8 are pages like others', async () => {
  for (const byte of [0x80, 0xc3, 0xff, 0x41])
    await writeFile(Buffer.concat([Buffer.from(`${workspace.root}/`), Buffer.from([byte])]), '')
  expect(await pages(workspace, 1)).toEqual(['A', '\ufffd', '\ufffd', '\ufffd'])
})

test('10,000 files are listed in less than 200 ms', async () => {
  for (let folder = 0; folder < 100; folder++) {
    await mkdir(workspace.at(`folder-${folder}`))
    await Promise.all(
      Array.from({ length: 99 }, (_, at) => writeFile(workspace.at(`folder-${folder}/${at}`), '')),
    )
  }
  const times: number[] = []
  for (let round = 0; round < 5; round++) {
    // The time of this thread: others use the machine at the same time.
    const before = process.threadCpuUsage()
    expect((await listFiles(workspace, { limit: 10_000 })).files).toHaveLength(10_000)
    const { user, system } = process.threadCpuUsage(before)
    times.push((user + system) / 1000)
  }
  expect(Math.min(...times)).toBeLessThan(200)
})

test('a search finds names, not what links lead to', async () => {
  await fill()
  await symlink(workspace.outside, workspace.at('link'))
  await symlink('/proc/self', workspace.at('proc'))
  const find = async (query: string, path?: string, limit = 100) =>
    (await searchFiles(workspace, { query, path, limit })).files.map((file) => file.path)
  expect(await find('secret*')).toEqual([])
  expect(await find('deep')).toEqual([])
  expect(await find('z.txt')).toEqual(['a/z.txt', 'b/x/y/z.txt'])
  expect(await find('*.txt', 'b')).toEqual(['b/x/y/z.txt', 'b/ü.txt'])
  expect(await find('b/**/*.txt')).toEqual(['b/x/y/z.txt', 'b/ü.txt'])
  expect(await find('lin?')).toEqual(['link'])
  await expect(find('*', 'link')).rejects.toMatchObject({ code: 'path_invalid' })
  expect(await searchFiles(workspace, { query: '*', limit: 2 })).toMatchObject({ truncated: true })
  const checkpoint = { checkpoint: new FilesInMemory(CONTENTS, modifiedAt) }
  expect((await searchFiles(checkpoint, { query: 'z.txt', limit: 9 })).files).toHaveLength(2)
})

test('a search in a folder that is swapped for a link never shows what is outside', async () => {
  await mkdir(workspace.at('folder'))
  await writeFile(workspace.at('folder/inside.txt'), '')
  await workspace.whileSwapping(async () => {
    const { files } = await searchFiles(workspace, { query: '*.txt', path: 'folder', limit: 10 })
    expect(files.map(({ path }) => path)).toEqual(['folder/inside.txt'])
  })
})
