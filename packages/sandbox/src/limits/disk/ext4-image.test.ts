import { execFile } from 'node:child_process'
import { mkdir, open, readFile, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, onTestFinished, test } from 'vitest'
import { tempDir } from '../../testing/temp-dir.ts'
import { makeImage, mountImage, mountUsedImage, unmount } from './ext4-image.ts'
import { canMountImages } from './loop-disk.ts'

const run = promisify(execFile)
/** Large enough to have a second superblock, as the images of sessions do. */
const SIZE_MB = 256
const STATE_AT = 1024 + 0x3a
const VOLUME_NAME_AT = 1024 + 0x78
const CLEAN = 1

/** An image with a file in it, unmounted, and where it can be mounted. */
async function makeUsed(): Promise<{ image: string; point: string }> {
  const dir = await tempDir()
  const [image, point] = [join(dir, 'disk.img'), join(dir, 'disk')]
  await mkdir(point)
  await makeImage(image, SIZE_MB)
  await mountImage(image, point)
  onTestFinished(() => unmount(point))
  await writeFile(join(point, 'note'), 'kept')
  await unmount(point)
  return { image, point }
}

async function stateOf(image: string): Promise<number> {
  await using file = await open(image, 'r')
  return (await file.read(Buffer.alloc(2), 0, 2, STATE_AT)).buffer.readUInt16LE(0)
}

describe.runIf(await canMountImages(tmpdir()))('an image that was used before', () => {
  test('is marked clean by being unmounted, and only then', async () => {
    const { image, point } = await makeUsed()
    expect(await stateOf(image)).toBe(CLEAN)
    await mountUsedImage(image, point)
    expect(await stateOf(image)).toBe(0)
    expect(await readFile(join(point, 'note'), 'utf8')).toBe('kept')
  })

  test.each([
    ['was mounted when the machine crashed', 0],
    ['has met errors', 3],
  ])('and %s is checked: the mark that mounting alone would keep is gone', async (_, state) => {
    const { image, point } = await makeUsed()
    await run('/sbin/debugfs', ['-w', '-R', `set_super_value state ${state}`, image])
    expect(await stateOf(image)).toBe(state)
    await mountImage(image, point)
    await unmount(point)
    expect(await stateOf(image)).toBe(state)

    await mountUsedImage(image, point)
    expect(await readFile(join(point, 'note'), 'utf8')).toBe('kept')
    await unmount(point)
    expect(await stateOf(image)).toBe(CLEAN)
  })

  test('is repaired where it says that it is clean but the kernel refuses it', async () => {
    const { image, point } = await makeUsed()
    await using file = await open(image, 'r+')
    await file.write(Buffer.from([1, 2, 3]), 0, 3, VOLUME_NAME_AT) // Its checksum no longer fits.
    expect(await stateOf(image)).toBe(CLEAN)
    await expect(mountImage(image, point)).rejects.toThrow()
    await mountUsedImage(image, point)
    expect(await readFile(join(point, 'note'), 'utf8')).toBe('kept')
  })

  test.each([0, 1024 * 1024])('of which %i zeros are left is refused', async (bytes) => {
    const { image, point } = await makeUsed()
    await truncate(image, 0)
    await truncate(image, bytes)
    await expect(mountUsedImage(image, point)).rejects.toThrow()
  })
})
