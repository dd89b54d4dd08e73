import { hash, randomUUID } from 'node:crypto'
import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs'
import { mkdir, open, readFile, rename, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { codeOf } from './checkpoint-fault.ts'

/** Where the blobs of one tenant are; blobs are never shared with another. */
export const tenantPath = (dir: string, tenantId: string): string =>
  join(dir, 'tenants', tenantFolder(tenantId))

export const blobPath = (dir: string, tenantId: string, blobHash: string): string =>
  join(tenantPath(dir, tenantId), blobHash.slice(0, 2), blobHash)

/** Blobs that are being written; what a crash left here is nobody's. */
export const temporaryPath = (dir: string): string => join(dir, 'tmp')

const tenantFolder = (tenantId: string) =>
  /^[a-z0-9][a-z0-9_-]{0,63}$/.test(tenantId) ? tenantId : `+${hash('sha256', tenantId)}`

/** The bytes of a blob; undefined where it is missing or does not match its hash. */
export async function readBlob(dir: string, tenantId: string, blobHash: string): Promise<Buffer | undefined> {
  return verified(
    blobHash,
    await readFile(blobPath(dir, tenantId, blobHash)).catch((error) => unlessMissing(error)),
  )
}

export function readBlobSync(dir: string, tenantId: string, blobHash: string): Buffer | undefined {
  try {
    return verified(blobHash, readFileSync(blobPath(dir, tenantId, blobHash)))
  } catch (error) {
    return unlessMissing(error)
  }
}

/** Whether it is there with that length. Reading it is what verifies it. */
export function hasBlobSync(path: string, length: number): boolean {
  return statSync(path, { throwIfNoEntry: false })?.size === length
}

/** Appears whole or not at all; one that is there already is left. Says whether it was written. */
export async function writeBlob(
  dir: string,
  tenantId: string,
  blobHash: string,
  bytes: Uint8Array,
  { sync }: { sync: boolean },
): Promise<boolean> {
  const path = blobPath(dir, tenantId, blobHash)
  const existing = await stat(path).catch((error) => unlessMissing(error))
  if (existing?.size !== bytes.byteLength) {
    const temporary = join(temporaryPath(dir), randomUUID())
    await mkdir(temporaryPath(dir), { recursive: true, mode: 0o700 })
    await mkdir(dirname(path), { recursive: true, mode: 0o700 })
    try {
      await writeWhole(temporary, bytes, sync)
      await rename(temporary, path)
    } catch (error) {
      await rm(temporary, { force: true })
      throw error
    }
  }
  if (sync) for (const folder of foldersAbove(dir, tenantId, path)) await syncFolder(folder)
  return existing?.size !== bytes.byteLength
}

/** As `writeBlob`, for threads. Folders are left for the caller to sync, once for all blobs: see `foldersAbove`. */
export function writeBlobSync(dir: string, path: string, bytes: Uint8Array, sync: boolean): boolean {
  if (hasBlobSync(path, bytes.byteLength)) return false
  const temporary = join(temporaryPath(dir), randomUUID())
  try {
    inFolder(temporary, () => writeWholeSync(temporary, bytes, sync))
    inFolder(path, () => renameSync(temporary, path))
  } catch (error) {
    rmSync(temporary, { force: true })
    throw error
  }
  return true
}

/** The folders that must be synced before a blob is sure to be found again. */
export const foldersAbove = (dir: string, tenantId: string, path: string): string[] => [
  dirname(path),
  tenantPath(dir, tenantId),
  join(dir, 'tenants'),
  dir,
]

export function syncFolderSync(folder: string): void {
  const fd = openSync(folder, 'r')
  try {
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}

function writeWholeSync(path: string, bytes: Uint8Array, sync: boolean): void {
  const fd = openSync(path, 'wx', 0o600)
  try {
    for (let at = 0; at < bytes.byteLength; ) at += writeSync(fd, bytes, at)
    if (sync) fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}

async function writeWhole(path: string, bytes: Uint8Array, sync: boolean): Promise<void> {
  await using file = await open(path, 'wx', 0o600)
  await file.writeFile(bytes)
  if (sync) await file.sync()
}

async function syncFolder(folder: string): Promise<void> {
  await using handle = await open(folder, 'r')
  await handle.sync()
}

/** Makes the folder of `path` where it is missing, and tries again. */
function inFolder(path: string, work: () => void): void {
  try {
    work()
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
    work()
  }
}

const verified = (blobHash: string, bytes: Buffer | undefined) =>
  bytes !== undefined && hash('sha256', bytes) === blobHash ? bytes : undefined

function unlessMissing(error: unknown): undefined {
  if (!['ENOENT', 'ENOTDIR', 'EISDIR'].includes(codeOf(error))) throw error
}
