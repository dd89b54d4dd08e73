import { execFile } from 'node:child_process'
import { open, readFile, realpath, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { INODES_PER_MB } from './disk-backend.ts'
import { isAttached, mountPointsBelow } from './image-mounts.ts'

const execute = promisify(execFile)
/** The tools are in folders that a service's own PATH may lack. */
const ENV = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' }
const TOOL_TIMEOUT_MS = 60_000
const MB = 1024 * 1024
/** From here on e2fsck has left something unrepaired. */
const FSCK_UNREPAIRED = 4
const BUSY_TRIES = 10
const BUSY_WAIT_MS = 50

/** Makes a sparse image with an empty file system. It appears complete or not at all. */
export async function makeImage(image: string, sizeMb: number): Promise<void> {
  const draft = `${image}.new`
  await rm(draft, { force: true })
  await using file = await open(draft, 'wx', 0o600)
  await file.truncate(sizeMb * MB)
  await run('mke2fs', mkfsArgs(draft, sizeMb))
  await rename(draft, image)
}

export function mkfsArgs(image: string, sizeMb: number): string[] {
  return [
    ...['-t', 'ext4', '-q', '-F', '-b', '4096', '-I', '256'],
    ...['-N', String(sizeMb * INODES_PER_MB)],
    ...['-m', '0'], // nothing set aside for root: the limit is the same for whoever writes
    ...['-O', '^has_journal,^resize_inode'],
    ...['-E', 'lazy_itable_init=1,nodiscard,root_owner=0:0'],
    ...['-e', 'remount-ro'],
    image,
  ]
}

/** `exec` stays allowed: agents run what they write. Inode tables in a sparse file need no zeroing. */
const MOUNT_OPTIONS = 'loop,nosuid,nodev,noatime,noinit_itable'

export async function mountImage(image: string, point: string): Promise<void> {
  await run('mount', ['-t', 'ext4', '-o', MOUNT_OPTIONS, image, point])
}

/** Mounts an image that may have been in use when the machine crashed. One that was unmounted costs no check. */
export async function mountUsedImage(image: string, point: string): Promise<void> {
  if (!(await isClean(image))) await repair(image)
  await mountImage(image, point).catch(async () => {
    await repair(image)
    await mountImage(image, point)
  })
}

async function repair(image: string): Promise<void> {
  // A repair of an image that is in use somewhere would destroy it; such a one can be mounted again as it is.
  if (await isAttached(await realpath(image))) return
  const hasFailed = (error: { code?: unknown }) => !(Number(error.code) < FSCK_UNREPAIRED)
  await run('e2fsck', ['-p', image]).catch(async (error: { code?: unknown }) => {
    if (!hasFailed(error)) return
    await run('e2fsck', ['-y', image]).catch((again: { code?: unknown }) => {
      if (hasFailed(again)) throw again
    })
  })
}

/** The superblock, which is at a fixed place: its magic number and, behind that, the state of the file system. */
const SUPERBLOCK = { magicAt: 1024 + 0x38, magic: 0xef53, unmountedWithoutErrors: 1 }

/** What e2fsck looks at first too, but without a process: the kernel takes the mark away for as long as it is mounted. */
async function isClean(image: string): Promise<boolean> {
  await using file = await open(image, 'r')
  const { buffer } = await file.read(Buffer.alloc(4), 0, 4, SUPERBLOCK.magicAt)
  return (
    buffer.readUInt16LE(0) === SUPERBLOCK.magic &&
    buffer.readUInt16LE(2) === SUPERBLOCK.unmountedWithoutErrors
  )
}

/** Says whether it worked: not while somebody has a file open there. */
export async function tryUnmount(point: string): Promise<boolean> {
  return run('umount', [point]).then(
    () => true,
    async () => !(await isMountPoint(point)),
  )
}

/** Waits a little for open files to be closed, then takes the folder away from whoever still has one. */
export async function unmount(point: string): Promise<void> {
  for (let tries = 0; tries < BUSY_TRIES; tries++) {
    if (await tryUnmount(point)) return
    await delay(BUSY_WAIT_MS)
  }
  await run('umount', ['-l', point])
}

/** Gives the host back the room of deleted files. */
export async function trim(point: string): Promise<void> {
  await run('fstrim', [point]).catch(() => {}) // Not every file system below can.
}

export async function unmountBelow(folder: string): Promise<void> {
  for (const point of mountPointsBelow(await readMounts(), folder)) await unmount(point)
}

async function isMountPoint(point: string): Promise<boolean> {
  const path = await realpath(point)
  return mountPointsBelow(await readMounts(), dirname(path)).includes(path)
}

const readMounts = () => readFile('/proc/self/mountinfo', 'utf8').catch(() => '')

async function run(tool: string, args: string[]): Promise<void> {
  await execute(tool, args, { env: ENV, cwd: '/', timeout: TOOL_TIMEOUT_MS })
}
