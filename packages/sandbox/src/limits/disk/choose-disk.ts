import { realpath } from 'node:fs/promises'
import { join } from 'node:path'
import type { DiskBackend } from './disk-backend.ts'
import { unmountBelow } from './ext4-image.ts'
import { canMountImages, LoopDisk } from './loop-disk.ts'
import { PolledDisk } from './polled-disk.ts'

/** The strongest way that this machine allows. What a killed server left mounted is unmounted first. */
export async function chooseDisk(dataDir: string): Promise<DiskBackend> {
  if (process.getuid?.() !== 0) return new PolledDisk()
  const folder = await realpath(join(dataDir, 'sandboxes'))
  await unmountBelow(folder)
  return (await canMountImages(folder)) ? new LoopDisk() : new PolledDisk()
}
