import { readdir, rm, stat, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import type { CheckpointStore } from './checkpoint-store.ts'
import { temporaryPath, tenantPath } from './local-blobs.ts'
import { isHash } from './manifest-check.ts'
import { REMOTE_GRACE_MS, type RemoteObject, type RemoteStore } from './remote-store.ts'
import { type KnownCheckpoint, SweepMarks } from './sweep-marks.ts'

export interface SweepRequest {
  tenantId: string
  /** The checkpoints of the tenant that the database has now, of all hosts. Asked more than once. */
  checkpoints: () => Promise<readonly KnownCheckpoint[]>
  /** Only counts. */
  dryRun: boolean
  /** What is left then is for the next time. */
  signal?: AbortSignal | undefined
}

export interface Swept {
  blobs: number
  bytes: number
}

/** Nobody saves meanwhile; so many are deleted before somebody may. */
const DELETES_PER_TURN = 2_000
const STATS_AT_ONCE = 32
/** What was being written that long ago is not any more. */
const TEMPORARY_MS = 60 * 60_000

interface Blob {
  hash: string
  path: string
  bytes: number
}

/** Deletes the blobs on this host that no checkpoint refers to. */
export async function sweepLocal(
  store: CheckpointStore,
  remote: RemoteStore | undefined,
  { tenantId, checkpoints, dryRun, signal }: SweepRequest,
): Promise<{ deleted: Swept; kept: Swept }> {
  // Looked through while others save; only what seems unused then is looked at again, while nobody does.
  const marks = new SweepMarks(store, remote, tenantId)
  await marks.addLocal(await checkpoints())
  const [deleted, kept] = [nothing(), nothing()]
  const unused: Blob[] = []
  for await (const blob of listBlobs(store, tenantId)) {
    if (marks.has(blob.hash)) count(kept, blob)
    else unused.push(blob)
  }
  if (dryRun) for (const blob of unused) count(deleted, blob)
  for (const batch of dryRun ? [] : batches(unused, DELETES_PER_TURN)) {
    if (signal?.aborted) break
    await store.exclusive(tenantId, async () => {
      await marks.addLocal(await checkpoints())
      for (const blob of batch) {
        if (marks.has(blob.hash)) count(kept, blob)
        else if (await unlinkIfThere(blob.path)) count(deleted, blob)
      }
    })
  }
  if (!dryRun) await removeLeftovers(store)
  return { deleted, kept }
}

async function* listBlobs(store: CheckpointStore, tenantId: string): AsyncGenerator<Blob> {
  const root = tenantPath(store.dir, tenantId)
  for (const folder of await readdirIfThere(root)) {
    const hashes = (await readdirIfThere(join(root, folder))).filter(isHash)
    for (const batch of batches(hashes, STATS_AT_ONCE)) {
      const blobs = await Promise.all(batch.map((hash) => statBlob(join(root, folder, hash), hash)))
      yield* blobs.filter((blob) => blob !== undefined)
    }
  }
}

async function statBlob(path: string, hash: string): Promise<Blob | undefined> {
  const stats = await unlessMissing(stat(path))
  return stats && { hash, path, bytes: stats.size }
}

/** What a crash left behind while it was written. */
async function removeLeftovers(store: CheckpointStore): Promise<void> {
  const folder = temporaryPath(store.dir)
  for (const name of await readdirIfThere(folder)) {
    const path = join(folder, name)
    const stats = await unlessMissing(stat(path))
    if (stats && Date.now() - stats.mtimeMs > TEMPORARY_MS) await rm(path, { recursive: true, force: true })
  }
}

/** Enough to keep the store busy, and over before a sweep that ends soon has to have ended. */
const REMOTE_DELETES_AT_ONCE = 16
const REMOTE_DELETE_MS = 3 * 60_000

/**
 * Deletes the old objects that no checkpoint of any host refers to, as far as it gets in its time. Uploads keep out
 * of its way: see uploadCheckpoint.
 */
export async function sweepRemote(
  store: CheckpointStore,
  remote: RemoteStore,
  request: SweepRequest,
): Promise<Swept> {
  if (request.dryRun) return sum(await listUnused(store, remote, request))
  // Announced before the checkpoints are asked for: one that comes later is not uploaded until this is over.
  const sweep = await remote.beginSweep(request.tenantId)
  try {
    const deleted: RemoteObject[] = []
    for (const batch of batches(await listUnused(store, remote, request), REMOTE_DELETES_AT_ONCE)) {
      if (request.signal?.aborted || Date.now() > sweep.endsAtMs - REMOTE_DELETE_MS) break
      await remote.delete(
        request.tenantId,
        batch.map(({ hash }) => hash),
      )
      deleted.push(...batch)
    }
    return sum(deleted)
  } finally {
    await sweep.end()
  }
}

async function listUnused(
  store: CheckpointStore,
  remote: RemoteStore,
  { tenantId, checkpoints }: SweepRequest,
): Promise<RemoteObject[]> {
  const oldestKeptMs = Date.now() - REMOTE_GRACE_MS
  const old: RemoteObject[] = []
  for await (const object of remote.list(tenantId)) if (object.modifiedMs < oldestKeptMs) old.push(object)
  if (old.length === 0) return []
  const marks = new SweepMarks(store, remote, tenantId)
  await marks.addAll(await checkpoints())
  return old.filter(({ hash }) => !marks.has(hash))
}

const nothing = (): Swept => ({ blobs: 0, bytes: 0 })

function count(total: Swept, { bytes }: { bytes: number }): void {
  total.blobs++
  total.bytes += bytes
}

function sum(objects: readonly RemoteObject[]): Swept {
  const total = nothing()
  for (const object of objects) count(total, object)
  return total
}

function* batches<Item>(items: readonly Item[], size: number): Generator<Item[]> {
  for (let start = 0; start < items.length; start += size) yield items.slice(start, start + size)
}

const readdirIfThere = async (folder: string): Promise<string[]> =>
  (await unlessMissing(readdir(folder))) ?? []

const unlinkIfThere = async (path: string): Promise<boolean> =>
  (await unlessMissing(unlink(path).then(() => true))) ?? false

async function unlessMissing<Result>(work: Promise<Result>): Promise<Result | undefined> {
  try {
    return await work
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined
    throw error
  }
}
