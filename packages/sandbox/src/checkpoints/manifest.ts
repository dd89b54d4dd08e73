import { hash } from 'node:crypto'
import { constants, zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import { CheckpointFault } from './checkpoint-fault.ts'
import { checkRoot, type Files } from './manifest-check.ts'
import { dataChunks, type Entry, type Manifest, ROOT_NAMES } from './manifest-entry.ts'

const MAX_MANIFEST_BYTES = 512 * 1024 * 1024
const VERSION = 1
/** Hashes do not get smaller by trying harder. */
const FASTEST = { params: { [constants.ZSTD_c_compressionLevel]: 1 } }

/** The blob that a manifest is stored as. The same files give the same bytes. */
export function encodeManifest(manifest: Manifest): { hash: string; bytes: Buffer } {
  const { workspace, home } = manifest
  const text = JSON.stringify({
    version: VERSION,
    workspace: workspace.map(canonical),
    home: home.map(canonical),
  })
  if (Buffer.byteLength(text) > MAX_MANIFEST_BYTES)
    throw new CheckpointFault('checkpoint_failed', 'There are too many files, or their paths are too long')
  const bytes = zstdCompressSync(text, FASTEST)
  return { hash: hash('sha256', bytes), bytes }
}

/** Throws an error that says what is wrong: the bytes may come from a damaged or hostile store. */
export function decodeManifest(bytes: Uint8Array): Manifest {
  const text = zstdDecompressSync(bytes, { maxOutputLength: MAX_MANIFEST_BYTES }).toString()
  const value: unknown = JSON.parse(text)
  if (typeof value !== 'object' || value === null) throw new Error('it is not an object')
  const { version, workspace, home } = value as Record<string, unknown>
  if (version !== VERSION) throw new Error(`its version is ${JSON.stringify(version)}, not ${VERSION}`)
  const files: Files = { workspace: new Set(), home: new Set() }
  return {
    workspace: checkRoot('workspace', workspace, files),
    home: checkRoot('home', home, files),
  }
}

/** The blobs that the files of a manifest need, with their length. */
export function blobsOf(manifest: Manifest): Map<string, number> {
  const blobs = new Map<string, number>()
  for (const root of ROOT_NAMES) {
    for (const entry of manifest[root]) {
      if (entry.type !== 'file') continue
      for (const { hash, length } of dataChunks(entry)) blobs.set(hash, length)
    }
  }
  return blobs
}

/** Keys always in this order, and no others. */
function canonical(entry: Entry): Entry {
  switch (entry.type) {
    case 'directory':
      return { type: entry.type, path: entry.path, mode: entry.mode, mtimeUs: entry.mtimeUs }
    case 'file': {
      const { type, path, mode, mtimeUs, size, chunks } = entry
      return { type, path, mode, mtimeUs, size, chunks }
    }
    case 'link':
      return { type: entry.type, path: entry.path, mtimeUs: entry.mtimeUs, target: entry.target }
    case 'hardlink':
      return { type: entry.type, path: entry.path, root: entry.root, of: entry.of }
  }
}
