import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { assertSameDatabase, openDataDir } from './data-dir.ts'

async function tempDir(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'ash-data-'))
  onTestFinished(() => rm(dir, { recursive: true, force: true }))
  return dir
}

test('a data directory belongs to the first database that uses it', async () => {
  const dir = await tempDir()
  await assertSameDatabase(dir, 'one')
  await assertSameDatabase(dir, 'one')
  await expect(assertSameDatabase(dir, 'other')).rejects.toThrow(/another database.*ASH_DATABASE_URL/)
})

test('what was half written when a server was killed is gone after the next start, and nothing else', async () => {
  const dir = await tempDir()
  const snapshots = join(dir, 'snapshots')
  for (const folder of ['tmp', 'tenants']) await mkdir(join(snapshots, folder), { recursive: true })
  await writeFile(join(snapshots, 'tmp', 'archive'), 'half')
  const opened = await openDataDir(dir)
  onTestFinished(opened.release)
  expect(await readdir(snapshots)).toEqual(['tenants'])
})

test('a host keeps its name, and a second server is refused', async () => {
  const dir = await tempDir()
  const first = await openDataDir(dir)
  await expect(openDataDir(dir)).rejects.toThrow('Another server uses')
  first.release()
  const second = await openDataDir(dir)
  onTestFinished(second.release)
  expect(second.hostId).toBe(first.hostId)
})
