import {
  closeSync,
  fchmodSync,
  fchownSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  futimesSync,
  lchownSync,
  linkSync,
  lutimesSync,
  mkdirSync,
  openSync,
  type Stats,
  symlinkSync,
  writeSync,
} from 'node:fs'
import type { Owner } from '../provider.ts'
import { aboutFile, CheckpointFault, displayPath } from './checkpoint-fault.ts'
import type { DeepPaths } from './deep-paths.ts'
import { toBytes } from './entry-path.ts'
import { readBlobSync } from './local-blobs.ts'
import {
  dataChunks,
  type Entry,
  type FileEntry,
  type FolderEntry,
  type HardLinkEntry,
  type RootName,
} from './manifest-entry.ts'
import type { ScanIndex } from './scan-index.ts'

export interface Restore {
  dir: string
  sync: boolean
  tenantId: string
  owner: Owner | undefined
  /** Folders that nobody else can reach yet. */
  paths: Record<RootName, DeepPaths>
  /** The same folders, for the other name of a hard link: two paths must not share their open folders. */
  linkPaths: Record<RootName, DeepPaths>
  /** Filled with what the files look like now. */
  index: ScanIndex
}

/** Makes everything but the modes, owners and times of folders: those change with each name added. */
export function makeEntries(restore: Restore, root: RootName, entries: Entry[]): void {
  for (const entry of entries) {
    if (entry.path !== '') aboutFile(entry.path, () => makeEntry(restore, root, entry))
  }
}

/** The deepest first: a folder may be closed to ourselves when it is done. */
export function finishFolders(restore: Restore, root: RootName, entries: Entry[]): void {
  for (const entry of entries.toReversed()) {
    if (entry.type !== 'directory') continue
    aboutFile(entry.path, () => {
      const fd = openSync(restore.paths[root].at(entry.path), 'r')
      finish(restore, fd, entry)
    })
  }
}

function makeEntry(restore: Restore, root: RootName, entry: Entry): void {
  const path = restore.paths[root].at(entry.path)
  switch (entry.type) {
    case 'directory':
      mkdirSync(path, { mode: 0o700 })
      return
    case 'file':
      learn(restore, root, entry, makeFile(restore, path, entry))
      return
    case 'link':
      symlinkSync(toBytes(entry.target), path)
      if (restore.owner) lchownSync(path, restore.owner.uid, restore.owner.gid)
      lutimesSync(path, toTime(entry.mtimeUs), toTime(entry.mtimeUs))
      return
    case 'hardlink':
      makeHardLink(restore, path, entry)
  }
}

function learn({ index }: Restore, root: RootName, entry: FileEntry, { ino, ctimeMs }: Stats): void {
  index.known[root].set(entry.path, { ino, ctimeMs, size: entry.size, chunks: entry.chunks })
}

/** One more name changes the ctime, by which the file would be known again. */
function makeHardLink(restore: Restore, path: string | Buffer, { root, of }: HardLinkEntry): void {
  linkSync(restore.linkPaths[root].at(of), path)
  restore.index.known[root].delete(of)
}

function makeFile(restore: Restore, path: string | Buffer, entry: FileEntry): Stats {
  const fd = openSync(path, 'wx', 0o600)
  try {
    fillFile(fd, restore.dir, restore.tenantId, entry)
  } catch (error) {
    closeSync(fd)
    throw error
  }
  return finish(restore, fd, entry)
}

/** Owner before mode: a change of owner may take bits away. */
function finish({ owner, sync }: Restore, fd: number, entry: FileEntry | FolderEntry): Stats {
  try {
    if (owner) fchownSync(fd, owner.uid, owner.gid)
    fchmodSync(fd, entry.mode)
    futimesSync(fd, toTime(entry.mtimeUs), toTime(entry.mtimeUs))
    if (sync) fsyncSync(fd)
    return fstatSync(fd)
  } finally {
    closeSync(fd)
  }
}

function fillFile(fd: number, dir: string, tenantId: string, entry: FileEntry): void {
  let end = 0
  for (const { hash, position, length } of dataChunks(entry)) {
    const bytes = readBlobSync(dir, tenantId, hash)
    if (bytes?.length !== length) {
      const what = bytes ? 'has the wrong length' : 'is missing or does not match its hash'
      throw new CheckpointFault(
        'checkpoint_damaged',
        `"${displayPath(entry.path)}" cannot be restored: its stored content ${hash.slice(0, 12)} ${what}`,
      )
    }
    for (let at = 0; at < length; ) at += writeSync(fd, bytes, at, length - at, position + at)
    end = position + length
  }
  if (end < entry.size) ftruncateSync(fd, entry.size)
}

/** A number before 1970 would be taken for now; a date reaches back, to the millisecond. */
const toTime = (mtimeUs: number): number | Date => (mtimeUs < 0 ? new Date(mtimeUs / 1000) : mtimeUs / 1e6)
