import { readSync, type Stats } from 'node:fs'
import type { BlobSink } from './blob-sink.ts'
import { CheckpointFault, displayPath } from './checkpoint-fault.ts'
import { CHUNK_BYTES, type Chunk } from './manifest-entry.ts'

/** Read of sparse files in one checkpoint: a hole costs no disk and no quota, but time. */
const MAX_SPARSE_BYTES = 8 * 1024 ** 3

export interface SparseBudget {
  bytesLeft: number
}

export const sparseBudget = (): SparseBudget => ({ bytesLeft: MAX_SPARSE_BYTES })

const buffer = Buffer.allocUnsafeSlow(CHUNK_BYTES)
const zeros = Buffer.alloc(CHUNK_BYTES)

/** Stores what a file holds, as far as it reaches by now. */
export function storeContent(
  fd: number,
  stats: Stats,
  path: string,
  { blobs, sparse }: { blobs: BlobSink; sparse: SparseBudget },
): { size: number; chunks: Chunk[] } {
  if (!Number.isSafeInteger(stats.size)) throw tooLarge(path, 'claims to be')
  // Small files may lie in the inode itself and take no block: those are read.
  if (stats.blocks === 0 && stats.size > CHUNK_BYTES) return { size: stats.size, chunks: [] }
  const isSparse = stats.blocks * 512 < stats.size
  const chunks: Chunk[] = []
  let size = 0
  while (size < stats.size) {
    const length = readChunk(fd, size, Math.min(CHUNK_BYTES, stats.size - size))
    if (length === 0) break
    if (isSparse) spend(sparse, length, path)
    addChunk(chunks, buffer.subarray(0, length), blobs)
    size += length
    // It was cut off meanwhile.
    if (length < CHUNK_BYTES) break
  }
  if (typeof chunks.at(-1) === 'number') chunks.pop()
  return { size, chunks }
}

function readChunk(fd: number, position: number, length: number): number {
  let filled = 0
  while (filled < length) {
    const count = readSync(fd, buffer, filled, length - filled, position + filled)
    if (count === 0) break
    filled += count
  }
  return filled
}

/** Zeros alone are a hole. */
export function addChunk(chunks: Chunk[], bytes: Buffer, blobs: BlobSink): void {
  if (bytes.compare(zeros, 0, bytes.length) !== 0) {
    chunks.push(blobs.put(bytes))
    return
  }
  const last = chunks.at(-1)
  if (typeof last === 'number') chunks[chunks.length - 1] = last + 1
  else chunks.push(1)
}

function spend(sparse: SparseBudget, length: number, path: string): void {
  sparse.bytesLeft -= length
  if (sparse.bytesLeft < 0) throw tooLarge(path, 'is, with others,')
}

const tooLarge = (path: string, what: string) =>
  new CheckpointFault(
    'checkpoint_failed',
    `"${displayPath(path)}" ${what} a sparse file of more than ${MAX_SPARSE_BYTES / 1024 ** 3} GiB. Delete it, or name it in .ashignore.`,
  )
