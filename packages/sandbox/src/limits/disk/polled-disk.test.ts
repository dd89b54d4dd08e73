import { mkdir, readdir, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { isAshError } from '@ash-ai/shared'
import { expect, test } from 'vitest'
import { createSessionDirs, sessionDirs } from '../../session-dirs.ts'
import { tempDir } from '../../testing/temp-dir.ts'
import { PolledDisk } from './polled-disk.ts'

const DISK_MB = 1
/** By then a count that began is over. */
const COUNTED_MS = 300

async function makeSession() {
  const dir = await tempDir()
  await mkdir(join(dir, 'agent'))
  const dirs = sessionDirs(dir, 'session-1')
  const disk = new PolledDisk()
  await disk.acquire(dirs)
  await createSessionDirs(dirs, join(dir, 'agent'), undefined)
  return { dirs, disk }
}
const settled = { interval: 20, timeout: 10_000 }

test('what stays below its share is fine', async () => {
  const { dirs, disk } = await makeSession()
  await writeFile(join(dirs.workspace, 'some'), 'x'.repeat(300_000))
  await disk.stateOf(dirs, DISK_MB)
  await delay(COUNTED_MS)
  expect(await disk.stateOf(dirs, DISK_MB)).toBe('ok')
})

test('workspace and home are counted together', async () => {
  const { dirs, disk } = await makeSession()
  await writeFile(join(dirs.workspace, 'some'), 'x'.repeat(600_000))
  await writeFile(join(dirs.home, 'more'), 'x'.repeat(600_000))
  await expect.poll(() => disk.stateOf(dirs, DISK_MB), settled).toBe('exceeded')
})

test('many small files are too many', async () => {
  const { dirs, disk } = await makeSession()
  for (let n = 0; n < 70; n++) await writeFile(join(dirs.workspace, `f${n}`), '')
  await expect.poll(() => disk.stateOf(dirs, DISK_MB), settled).toBe('exceeded')
})

test('a hole in a file takes no room', async () => {
  const { dirs, disk } = await makeSession()
  await writeFile(join(dirs.workspace, 'sparse'), '')
  await truncate(join(dirs.workspace, 'sparse'), 50 * 1024 * 1024)
  await disk.stateOf(dirs, DISK_MB)
  await delay(COUNTED_MS)
  expect(await disk.stateOf(dirs, DISK_MB)).toBe('ok')
})

test('a session that starts again is counted anew', async () => {
  const { dirs, disk } = await makeSession()
  await writeFile(join(dirs.workspace, 'much'), 'x'.repeat(1_200_000))
  await expect.poll(() => disk.stateOf(dirs, DISK_MB), settled).toBe('exceeded')
  disk.release(dirs)
  await disk.acquire(dirs)
  expect(await disk.stateOf(dirs, DISK_MB)).toBe('ok')
  await disk.remove(dirs)
  expect(await readdir(join(dirs.root, '..'))).toEqual([])
})

test('files in an image that cannot be mounted are not silently replaced by none', async () => {
  const { dirs, disk } = await makeSession()
  await writeFile(join(dirs.root, 'disk.img'), '')
  const error = await disk.acquire(dirs).catch((thrown: unknown) => thrown)
  expect(isAshError(error, 'provider_unavailable')).toBe(true)
})

test('files in an image that cannot be mounted are not taken for none', async () => {
  const { dirs, disk } = await makeSession()
  await writeFile(join(dirs.root, 'disk.img'), '')
  await expect(disk.ensureMounted(dirs)).rejects.toMatchObject({ code: 'provider_unavailable' })
  expect(await readdir(dirs.root)).toContain('disk.img')
})
