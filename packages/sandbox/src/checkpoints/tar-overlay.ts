import { BlobSink } from './blob-sink.ts'
import { CheckpointFault, displayPath, toFault } from './checkpoint-fault.ts'
import type { SavedCheckpoint } from './checkpoint-store.ts'
import { addChunk } from './file-content.ts'
import { encodeManifest } from './manifest.ts'
import { CHUNK_BYTES, type Chunk, MAX_ENTRIES, totalsOf } from './manifest-entry.ts'
import { readManifest } from './read-manifest.ts'
import { readTarEntries, type TarEntry } from './tar-entries.ts'
import { BLOCK_BYTES } from './tar-header.ts'
import { CheckpointTree, type FileNode, newFolder, type TreeNode } from './tar-tree.ts'

export interface OverlayTask {
  tenantId: string
  /** A file of this host. */
  archive: string
  /** The manifest of a checkpoint of this host. */
  base: string | undefined
  /** The workspace of `base` is left out. */
  replace: boolean
  /** Of all files in the archive. */
  maxBytes: number
  /** Folders that come into being with their files count, too. */
  maxEntries: number
}

/** An entry costs a header and padding, with long names some more. */
export const maxTarBytes = ({ maxBytes, maxEntries }: Pick<OverlayTask, 'maxBytes' | 'maxEntries'>): number =>
  maxBytes + (maxEntries + 2) * 8 * BLOCK_BYTES

export type TarCheck = Pick<OverlayTask, 'archive' | 'maxBytes' | 'maxEntries'>

/** Runs inside a thread: throws where the archive is none, or too large. */
export async function checkTar(task: TarCheck): Promise<void> {
  let bytesLeft = task.maxBytes
  for await (const entry of readTarEntries(task.archive, maxTarBytes(task))) {
    bytesLeft -= entry.size
    if (bytesLeft < 0) throw tooLarge(task, entry)
  }
}

/** Runs inside a thread: a checkpoint with the archive laid over another one. Nothing refers to it yet. */
export async function overlayTar(
  store: { dir: string; sync: boolean },
  task: OverlayTask,
): Promise<SavedCheckpoint> {
  const { tenantId, base, replace, maxEntries } = task
  const blobs = new BlobSink({ ...store, tenantId })
  const tree = new CheckpointTree(maxEntries)
  if (base !== undefined) tree.load(readManifest(store.dir, tenantId, base), { withWorkspace: !replace })
  let bytesLeft = task.maxBytes
  for await (const entry of readTarEntries(task.archive, maxTarBytes(task))) {
    bytesLeft -= entry.size
    if (bytesLeft < 0) throw tooLarge(task, entry)
    tree.place(entry.path, await toNode(entry, tree, blobs))
  }
  const manifest = tree.toManifest()
  if (manifest.workspace.length > MAX_ENTRIES)
    throw new CheckpointFault('payload_too_large', `A workspace has at most ${MAX_ENTRIES} entries`)
  const { hash, bytes } = encodeManifest(manifest)
  blobs.put(bytes)
  blobs.settle()
  return { manifest: hash, ...totalsOf(manifest), newBytes: blobs.newBytes }
}

const tooLarge = ({ maxBytes }: TarCheck, { path }: TarEntry) =>
  new CheckpointFault(
    'payload_too_large',
    `With "${displayPath(path)}" the files of the archive have more than ${maxBytes} bytes`,
  )

async function toNode(entry: TarEntry, tree: CheckpointTree, blobs: BlobSink): Promise<TreeNode> {
  const { type, mode, mtimeUs, size, target } = entry
  switch (type) {
    case 'directory':
      return newFolder(mode, mtimeUs)
    case 'symlink':
      return { type: 'link', mtimeUs, target }
    case 'file':
      return { type, mode, mtimeUs, size, chunks: await storeContent(entry, blobs) }
    case 'hardlink':
      return getLinked(tree, entry)
  }
}

function getLinked(tree: CheckpointTree, { path, target }: TarEntry): FileNode {
  const file = tree.findFile(target)
  if (file) return file
  throw new CheckpointFault(
    'archive_invalid',
    `"${displayPath(path)}" is a hard link to "${displayPath(target)}", which is no file before it`,
  )
}

const buffer = Buffer.alloc(CHUNK_BYTES)

/** In chunks of a checkpoint, whatever the pieces it comes in. */
async function storeContent({ content, path }: TarEntry, blobs: BlobSink): Promise<Chunk[]> {
  const chunks: Chunk[] = []
  let filled = 0
  const flush = () => {
    try {
      addChunk(chunks, buffer.subarray(0, filled), blobs)
    } catch (error) {
      throw toFault(error, `"${displayPath(path)}"`)
    }
    filled = 0
  }
  for await (const piece of content) {
    for (let at = 0; at < piece.byteLength; ) {
      const length = Math.min(piece.byteLength - at, CHUNK_BYTES - filled)
      buffer.set(piece.subarray(at, at + length), filled)
      filled += length
      at += length
      if (filled === CHUNK_BYTES) flush()
    }
  }
  if (filled > 0) flush()
  if (typeof chunks.at(-1) === 'number') chunks.pop()
  return chunks
}
