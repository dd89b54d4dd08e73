import { rm, stat } from 'node:fs/promises'
import { AshError } from '@ash-ai/shared'
import { faultPoint } from '../fault-point.ts'
import type { CheckpointStore } from './checkpoint-store.ts'
import { blobPath, readBlob, writeBlob } from './local-blobs.ts'
import { REMOTE_GRACE_MS, type RemoteStore } from './remote-store.ts'

export interface Transferred {
  blobs: number
  bytes: number
}

const FETCHES_AT_ONCE = 16
const UPLOADS_AT_ONCE = 8
/** Objects that are older are put again: what a sweep might think of next is then far off. */
const YOUNG_MS = REMOTE_GRACE_MS / 2

/** Gets from the remote store what this host lacks of a checkpoint that the database knows. */
export async function fetchCheckpoint(
  store: CheckpointStore,
  remote: RemoteStore,
  tenantId: string,
  manifest: string,
  /** Also what is there and damaged. */
  { verifies = false } = {},
): Promise<Transferred> {
  const fetched = { blobs: 0, bytes: 0 }
  const fetch = async (hash: string) => {
    const bytes = await fetchBlob(store, remote, tenantId, hash)
    fetched.bytes += bytes
    fetched.blobs++
  }
  // Not beside a sweep: one that begins later finds the manifest here, and leaves its blobs alone.
  await store.shared(tenantId, async () => {
    if ((await store.missing(tenantId, manifest)).includes(manifest)) await fetch(manifest)
  })
  await inParallel(await store.missing(tenantId, manifest, { verifies }), FETCHES_AT_ONCE, fetch)
  return fetched
}

export const isLocal = async (store: CheckpointStore, tenantId: string, hash: string): Promise<boolean> =>
  (await stat(blobPath(store.dir, tenantId, hash)).catch(() => undefined)) !== undefined

/** One blob, or a manifest. Says how long it is. */
export async function fetchBlob(
  store: CheckpointStore,
  remote: RemoteStore,
  tenantId: string,
  hash: string,
): Promise<number> {
  const bytes = await remote.get(tenantId, hash)
  if (!bytes) throw new AshError('checkpoint_damaged', `The snapshot store does not have ${hash}`)
  if ((await sha256(bytes)) !== hash) {
    throw new AshError('checkpoint_damaged', `What the snapshot store has as ${hash} is something else`)
  }
  // One that is there, but damaged, would be taken for it.
  if (!(await readBlob(store.dir, tenantId, hash)))
    await rm(blobPath(store.dir, tenantId, hash), { force: true })
  await writeBlob(store.dir, tenantId, hash, bytes, { sync: store.sync })
  return bytes.byteLength
}

/** On another thread. */
async function sha256(bytes: Buffer): Promise<string> {
  const view = new Uint8Array(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength)
  return Buffer.from(await crypto.subtle.digest('SHA-256', view)).toString('hex')
}

/**
 * Puts a checkpoint that the database knows into the remote store, the manifest last: a manifest that is there is
 * whole. What `uploadedBefore` refers to, a manifest that the remote store and the database still have, is left out.
 */
export async function uploadCheckpoint(
  store: CheckpointStore,
  remote: RemoteStore,
  { tenantId, manifest, uploadedBefore }: { tenantId: string; manifest: string; uploadedBefore?: string },
  signal: AbortSignal,
): Promise<Transferred> {
  // A sweep that read the list of checkpoints before this one was in it might delete what we find there now.
  if (await remote.isSwept(tenantId)) {
    throw new AshError(
      'store_unavailable',
      'Unused objects are being deleted; the upload waits until that is over',
    )
  }
  const hasBefore = uploadedBefore !== undefined && (await isLocal(store, tenantId, uploadedBefore))
  const hashes = await store.hashes(tenantId, manifest, hasBefore ? uploadedBefore : undefined)
  const put = { blobs: 0, bytes: 0 }
  await inParallel(hashes.slice(0, -1), UPLOADS_AT_ONCE, async (hash) => {
    signal.throwIfAborted()
    await upload(store, remote, tenantId, hash, put)
  })
  faultPoint('upload-blobs')
  signal.throwIfAborted()
  await upload(store, remote, tenantId, manifest, put)
  faultPoint('upload-manifest')
  return put
}

async function upload(
  store: CheckpointStore,
  remote: RemoteStore,
  tenantId: string,
  hash: string,
  put: Transferred,
): Promise<void> {
  const there = await remote.has(tenantId, hash)
  if (there && Date.now() - there.modifiedMs < YOUNG_MS) return
  const bytes = await readBlob(store.dir, tenantId, hash)
  if (!bytes) throw new AshError('checkpoint_damaged', `${hash} is missing here, or does not match its hash`)
  await remote.put(tenantId, hash, bytes)
  put.blobs++
  put.bytes += bytes.byteLength
}

/** After the first failure nothing new is begun; nothing is under way any more when this is over. */
async function inParallel<Item>(
  items: readonly Item[],
  width: number,
  work: (item: Item) => Promise<void>,
): Promise<void> {
  const rest = items.values()
  const failures: unknown[] = []
  const lane = async () => {
    for (const item of rest) {
      if (failures.length > 0) return
      await work(item).catch((error: unknown) => failures.push(error))
    }
  }
  await Promise.all(Array.from({ length: width }, lane))
  if (failures.length > 0) throw failures[0]
}
