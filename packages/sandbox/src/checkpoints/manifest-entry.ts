/**
 * What a checkpoint holds. Paths are relative, `''` is the root itself, and keep their bytes as Latin-1 characters:
 * names need not be UTF-8. Each folder comes before its content, names in the order of their bytes.
 */
export interface Manifest {
  workspace: Entry[]
  home: Entry[]
}

export type RootName = keyof Manifest
export type Entry = FolderEntry | FileEntry | LinkEntry | HardLinkEntry

export interface FolderEntry {
  type: 'directory'
  path: string
  mode: number
  mtimeUs: number
}

export interface FileEntry {
  type: 'file'
  path: string
  mode: number
  mtimeUs: number
  size: number
  chunks: Chunk[]
}

export interface LinkEntry {
  type: 'link'
  path: string
  mtimeUs: number
  target: string
}

/** Another name of a file that comes earlier; the workspace comes before the home. */
export interface HardLinkEntry {
  type: 'hardlink'
  path: string
  root: RootName
  of: string
}

/** The hash of the next CHUNK_BYTES, or how many such chunks hold only zeros. A hole at the end is left out. */
export type Chunk = string | number

export const CHUNK_BYTES = 1024 * 1024
export const ROOT_NAMES = ['workspace', 'home'] as const satisfies RootName[]
export const MAX_ENTRIES = 1_000_000

/** The stored parts of a file; what lies between them is zeros. */
export function* dataChunks(
  file: Pick<FileEntry, 'size' | 'chunks'>,
): Generator<{ hash: string; position: number; length: number }> {
  let position = 0
  for (const chunk of file.chunks) {
    if (typeof chunk === 'string') {
      yield { hash: chunk, position, length: Math.min(CHUNK_BYTES, file.size - position) }
      position += CHUNK_BYTES
    } else {
      position += chunk * CHUNK_BYTES
    }
  }
}

/** Files by every name they have; bytes once. */
export function totalsOf(manifest: Manifest): { files: number; bytes: number } {
  let [files, bytes] = [0, 0]
  for (const root of ROOT_NAMES) {
    for (const entry of manifest[root]) {
      if (entry.type === 'file' || entry.type === 'hardlink') files++
      if (entry.type === 'file') bytes += entry.size
    }
  }
  return { files, bytes: Math.min(bytes, Number.MAX_SAFE_INTEGER) }
}
