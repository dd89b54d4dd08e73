import { hash } from 'node:crypto'
import { faultPoint } from '../fault-point.ts'
import { blobPath, foldersAbove, hasBlobSync, syncFolderSync, writeBlobSync } from './local-blobs.ts'

/** Where the blobs of one checkpoint go, from inside a thread. */
export class BlobSink {
  readonly #dir: string
  readonly #tenantId: string
  readonly #sync: boolean
  readonly #seen = new Set<string>()
  readonly #folders = new Set<string>()
  /** What had to be written. */
  newBytes = 0

  constructor({ dir, tenantId, sync }: { dir: string; tenantId: string; sync: boolean }) {
    this.#dir = dir
    this.#tenantId = tenantId
    this.#sync = sync
  }

  /** Stores what is not there yet; says its hash. */
  put(bytes: Uint8Array): string {
    const blobHash = hash('sha256', bytes)
    if (this.#seen.has(blobHash)) return blobHash
    const path = blobPath(this.#dir, this.#tenantId, blobHash)
    if (writeBlobSync(this.#dir, path, bytes, this.#sync)) {
      this.newBytes += bytes.byteLength
      faultPoint('checkpoint-blobs')
    }
    // Also of one that was there: another checkpoint may have written it just now.
    if (this.#sync)
      for (const folder of foldersAbove(this.#dir, this.#tenantId, path)) this.#folders.add(folder)
    this.#seen.add(blobHash)
    return blobHash
  }

  has(blobHash: string, length: number): boolean {
    return this.#seen.has(blobHash) || hasBlobSync(blobPath(this.#dir, this.#tenantId, blobHash), length)
  }

  /** After this, a power failure loses none of them. */
  settle(): void {
    for (const folder of this.#folders) syncFolderSync(folder)
    this.#folders.clear()
  }
}
