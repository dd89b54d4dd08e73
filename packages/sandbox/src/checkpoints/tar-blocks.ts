import { CheckpointFault, displayPath } from './checkpoint-fault.ts'
import { readBlobSync } from './local-blobs.ts'
import { CHUNK_BYTES, dataChunks, type Entry, type FileEntry } from './manifest-entry.ts'
import { readManifest } from './read-manifest.ts'
import { END_OF_ARCHIVE, encodeHeader, paddingAfter, type TarHeader } from './tar-header.ts'

interface Source {
  dir: string
  tenantId: string
  manifest: string
}

/** From inside a thread: the workspace of a checkpoint as a tar archive, piece by piece. */
export function* tarBlocks(source: Source): Generator<Buffer> {
  for (const entry of readManifest(source.dir, source.tenantId, source.manifest).workspace) {
    // Whoever unpacks it has a folder already.
    if (entry.path === '') continue
    yield encodeHeader(toHeader(entry))
    if (entry.type === 'file') yield* content(source, entry)
  }
  yield END_OF_ARCHIVE
}

function toHeader(entry: Entry): TarHeader {
  const plain = { path: entry.path, mode: 0o777, mtimeUs: 0, size: 0, target: '' }
  switch (entry.type) {
    case 'file':
      return { ...plain, type: 'file', mode: entry.mode, mtimeUs: entry.mtimeUs, size: entry.size }
    case 'directory':
      return { ...plain, type: 'directory', mode: entry.mode, mtimeUs: entry.mtimeUs }
    case 'link':
      return { ...plain, type: 'symlink', mtimeUs: entry.mtimeUs, target: entry.target }
    case 'hardlink':
      // Of a file in the workspace: the home comes later.
      return { ...plain, type: 'hardlink', mode: 0o644, target: entry.of }
  }
}

function* content({ dir, tenantId }: Source, file: FileEntry): Generator<Buffer> {
  let end = 0
  for (const { hash, position, length } of dataChunks(file)) {
    yield* zeros(position - end)
    const bytes = readBlobSync(dir, tenantId, hash)
    if (bytes?.length !== length) {
      throw new CheckpointFault(
        'checkpoint_damaged',
        `The stored content of "${displayPath(file.path)}" is missing or does not match its hash`,
      )
    }
    yield bytes
    end = position + length
  }
  yield* zeros(file.size - end)
  yield paddingAfter(file.size)
}

const NOTHING = Buffer.alloc(CHUNK_BYTES)

function* zeros(length: number): Generator<Buffer> {
  for (let left = length; left > 0; left -= CHUNK_BYTES)
    yield NOTHING.subarray(0, Math.min(left, CHUNK_BYTES))
}
