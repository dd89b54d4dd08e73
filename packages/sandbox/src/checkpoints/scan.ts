import { fstatSync, type Stats } from 'node:fs'
import type { BlobSink } from './blob-sink.ts'
import { aboutFile, CheckpointFault, displayPath, isGone, toFault } from './checkpoint-fault.ts'
import { joinPath, MAX_PATH_BYTES } from './entry-path.ts'
import { type SparseBudget, sparseBudget, storeContent } from './file-content.ts'
import {
  childOf,
  type Held,
  type HeldFolder,
  holdFile,
  holdFolder,
  namesIn,
  readLink,
  statChild,
} from './held-folder.ts'
import { type IsLeftOut, leftOutOfHome, leftOutOfWorkspace } from './left-out.ts'
import {
  dataChunks,
  type Entry,
  type FileEntry,
  MAX_ENTRIES,
  type Manifest,
  type RootName,
} from './manifest-entry.ts'
import type { KnownFile, ScanIndex } from './scan-index.ts'

export interface ScanOptions {
  blobs: BlobSink
  /** What is known from the last time. */
  index: ScanIndex | undefined
  /** Filled with what this scan learns. */
  next: ScanIndex
  /** Only files that have not changed since then can be known again later by their ctime. */
  settledBeforeMs: number
  /** Inodes to read whatever their times say. */
  mapped: ReadonlySet<number>
}

interface Scan extends ScanOptions {
  root: RootName
  isLeftOut: IsLeftOut
  entries: Entry[]
  /** First names of files that have more than one, of both roots. */
  names: Map<string, { root: RootName; of: string }>
  sparse: SparseBudget
  /** What is open: closed at the end whatever happens. */
  held: Set<Held>
}

/** Folders on the way down that stay open at once; below, each is closed while its child is visited. */
const MAX_HELD = 64
/** At one name that is something else each time. */
const MAX_LOOKS = 3
/** A file that changes while it is read is read this often. Then it is taken as it is: a log may never rest. */
const MAX_READS = 3

/** Lists both trees and stores what their files hold. Links are noted and never followed. */
export function scanRoots(roots: Record<RootName, string>, options: ScanOptions): Manifest {
  const shared = { ...options, names: new Map(), sparse: sparseBudget() }
  const scanned = (root: RootName) =>
    scanRoot(roots[root], { ...shared, root, isLeftOut: leftOutOfHome, entries: [], held: new Set() })
  // In this order: a hard link refers to a name that comes earlier.
  const workspace = scanned('workspace')
  return { workspace, home: scanned('home') }
}

function scanRoot(path: string, scan: Scan): Entry[] {
  try {
    const folder = keep(scan, openRoot(path, scan.root))
    if (scan.root === 'workspace') scan.isLeftOut = leftOutOfWorkspace(folder)
    scan.entries.push({ type: 'directory', path: '', ...timeAndMode(folder.stats) })
    scanFolder(scan, folder, '', 1)
    return scan.entries
  } finally {
    for (const held of scan.held) held.close()
  }
}

function openRoot(path: string, root: RootName): HeldFolder {
  try {
    return holdFolder(Buffer.from(path).toString('latin1'))
  } catch (error) {
    throw toFault(error, `The ${root}`)
  }
}

/** Returns the folder open: not always the same descriptor. */
function scanFolder(scan: Scan, start: HeldFolder, path: string, depth: number): HeldFolder {
  let folder = start
  for (const name of namesIn(folder)) {
    const childPath = joinPath(path, name)
    const child = aboutFile(childPath, () => unlessGone(() => visit(scan, folder, name, childPath)))
    if (child === undefined) continue
    if (depth >= MAX_HELD) release(scan, folder)
    const left = scanFolder(scan, keep(scan, child), childPath, depth + 1)
    if (depth >= MAX_HELD) folder = keep(scan, reopenParent(left, folder, path))
    release(scan, left)
  }
  return folder
}

/** Notes one entry; the folder, open, where it is one. */
function visit(scan: Scan, folder: HeldFolder, name: string, path: string): HeldFolder | undefined {
  const stats = statChild(folder, name)
  if (stats === undefined || scan.isLeftOut(path, stats.isDirectory())) return undefined
  checkRoom(scan, path)
  if (stats.isDirectory()) {
    const child = holdFolder(childOf(folder, name))
    scan.entries.push({ type: 'directory', path, ...timeAndMode(child.stats) })
    return child
  }
  if (stats.isFile()) {
    const entry = visitFile(scan, folder, name, path, stats)
    if (entry) scan.entries.push(entry)
  } else if (stats.isSymbolicLink()) {
    const { mtimeUs } = timeAndMode(stats)
    scan.entries.push({ type: 'link', path, mtimeUs, target: readLink(folder, name) })
  }
  return undefined
}

function visitFile(
  scan: Scan,
  folder: HeldFolder,
  name: string,
  path: string,
  stats: Stats,
): Entry | undefined {
  const other = stats.nlink > 1 ? scan.names.get(inodeKey(stats)) : undefined
  if (other) return { type: 'hardlink', path, ...other }
  const known = findKnown(scan, path, stats)
  if (known === undefined) return readFile(scan, folder, name, path)
  scan.next.known[scan.root].set(path, known)
  noteName(scan, path, stats)
  return { type: 'file', path, ...timeAndMode(stats), size: known.size, chunks: known.chunks }
}

function findKnown(scan: Scan, path: string, stats: Stats): KnownFile | undefined {
  const known = scan.index?.known[scan.root].get(path)
  if (known?.ino !== stats.ino || known.ctimeMs !== stats.ctimeMs || known.size !== stats.size)
    return undefined
  if (scan.mapped.has(stats.ino)) return undefined
  return scan.index?.generation === scan.next.generation || hasBlobs(scan, known) ? known : undefined
}

/** Blobs may have been swept since the last time. */
function hasBlobs(scan: Scan, known: KnownFile): boolean {
  for (const { hash, length } of dataChunks(known)) if (!scan.blobs.has(hash, length)) return false
  return true
}

function readFile(scan: Scan, folder: HeldFolder, name: string, path: string): FileEntry | undefined {
  for (let reads = 1; ; reads++) {
    const held = holdFile(folder, name)
    if (held === undefined) return undefined
    try {
      const before = fstatSync(held.fd)
      const content = storeContent(held.fd, before, path, scan)
      const isSettled = isSame(before, fstatSync(held.fd))
      if (!isSettled && reads < MAX_READS) continue
      if (isSettled) learn(scan, path, before, content)
      noteName(scan, path, before)
      return { type: 'file', path, ...timeAndMode(held.stats), ...content }
    } finally {
      held.close()
    }
  }
}

function learn(scan: Scan, path: string, stats: Stats, content: Pick<FileEntry, 'size' | 'chunks'>): void {
  if (stats.ctimeMs >= scan.settledBeforeMs || scan.mapped.has(stats.ino)) return
  scan.next.known[scan.root].set(path, { ino: stats.ino, ctimeMs: stats.ctimeMs, ...content })
}

/** An inode that a number cannot hold exactly could be taken for another: its names are saved as files of their own. */
function noteName(scan: Scan, path: string, stats: Stats): void {
  if (stats.nlink > 1 && Number.isSafeInteger(stats.ino)) {
    scan.names.set(inodeKey(stats), { root: scan.root, of: path })
  }
}

const inodeKey = (stats: Stats) => `${stats.dev}:${stats.ino}`

const isSame = (left: Stats, right: Stats) =>
  left.size === right.size && left.ctimeMs === right.ctimeMs && left.mtimeMs === right.mtimeMs

function checkRoom(scan: Scan, path: string): void {
  if (path.length > MAX_PATH_BYTES) {
    const start = displayPath(path.slice(0, 200))
    throw new CheckpointFault('checkpoint_failed', `"${start}…" is longer than ${MAX_PATH_BYTES} bytes`)
  }
  if (scan.entries.length >= MAX_ENTRIES) {
    throw new CheckpointFault('checkpoint_failed', `The ${scan.root} holds more than ${MAX_ENTRIES} files`)
  }
}

/** By `..`, which the sandbox may have changed meanwhile by moving the child. */
function reopenParent(child: HeldFolder, parent: HeldFolder, path: string): HeldFolder {
  const again = aboutFile(path, () => holdFolder(childOf(child, '..')))
  if (again.stats.ino === parent.stats.ino && again.stats.dev === parent.stats.dev) return again
  again.close()
  throw new CheckpointFault('checkpoint_failed', `"${displayPath(path)}" was moved while it was saved`)
}

function keep<Kind extends Held>(scan: Scan, held: Kind): Kind {
  scan.held.add(held)
  return held
}

function release(scan: Scan, held: Held): void {
  if (scan.held.delete(held)) held.close()
}

/**
 * A sandbox that is not frozen goes on working: what it swaps meanwhile is looked at again, what it removes or swaps
 * all the time is left out.
 */
function unlessGone<Result>(work: () => Result): Result | undefined {
  for (let looks = 1; ; looks++) {
    try {
      return work()
    } catch (error) {
      if (!isGone(error)) throw error
      if (looks === MAX_LOOKS) return undefined
    }
  }
}

/** Set-id bits are dropped. Times are kept to the microsecond, where a number can hold them. */
function timeAndMode(stats: Stats): { mode: number; mtimeUs: number } {
  const mtimeUs = Math.round(stats.mtimeMs * 1000)
  const limit = Number.MAX_SAFE_INTEGER
  return { mode: stats.mode & 0o1777, mtimeUs: Math.max(-limit, Math.min(limit, mtimeUs)) }
}
