import type { CheckpointDiff, FileEntry as ListedFile } from '@ash-ai/shared'
import { CheckpointFault, displayPath } from './checkpoint-fault.ts'
import { comparePaths, parentOf } from './entry-path.ts'
import type { Entry, FileEntry, FolderEntry, LinkEntry, Manifest } from './manifest-entry.ts'

export interface Listing {
  files: ListedFile[]
  truncated: boolean
}

/** What stands at a path: a hard link is a file like any other. */
type Item = FolderEntry | FileEntry | LinkEntry

/** Everything below `path` in the workspace, in the order of the manifest. */
export function listWorkspace(manifest: Manifest, path: string | undefined, limit: number): Listing {
  if (path !== undefined && getItem(manifest, path).type !== 'directory') throw notAFolder(path)
  const prefix = path === undefined ? '' : `${path}/`
  const files: ListedFile[] = []
  for (const entry of manifest.workspace) {
    if (entry.path === '' || !entry.path.startsWith(prefix)) continue
    if (files.length === limit) return { files, truncated: true }
    files.push(toListed(toItem(manifest, entry)))
  }
  return { files, truncated: false }
}

/** A regular file of the workspace. */
export function getFile(manifest: Manifest, path: string): FileEntry {
  const item = getItem(manifest, path)
  if (item.type === 'file') return item
  if (item.type === 'directory') {
    throw new CheckpointFault('not_a_file', `"${displayPath(path)}" is not a regular file`)
  }
  throw new CheckpointFault('path_invalid', `"${displayPath(path)}" is a link, and links are not followed`)
}

type Diff = Pick<CheckpointDiff, 'added' | 'changed' | 'removed' | 'truncated'>

/** What became of the workspace; a new time alone is no change. */
export function diffWorkspaces(from: Manifest, to: Manifest, limit: number): Diff {
  const diff: Diff = { added: [], changed: [], removed: [], truncated: false }
  let count = 0
  for (const [left, right] of inStep(from, to)) {
    const item = right ?? left
    if (item === undefined || (left && right && !hasChanged(left, right))) continue
    if (count++ === limit) return { ...diff, truncated: true }
    const kind = left === undefined ? 'added' : right === undefined ? 'removed' : 'changed'
    diff[kind].push({ path: displayPath(item.path), type: item.type, size: sizeOf(item) })
  }
  return diff
}

/** Pairs what has the same path. The roots themselves, which come first, are left out. */
function* inStep(left: Manifest, right: Manifest): Generator<[Item | undefined, Item | undefined]> {
  let [leftAt, rightAt] = [1, 1]
  for (;;) {
    const [a, b] = [left.workspace[leftAt], right.workspace[rightAt]]
    if (a === undefined && b === undefined) return
    const order = a === undefined ? 1 : b === undefined ? -1 : comparePaths(a.path, b.path)
    if (order <= 0) leftAt++
    if (order >= 0) rightAt++
    yield [a && order <= 0 ? toItem(left, a) : undefined, b && order >= 0 ? toItem(right, b) : undefined]
  }
}

function hasChanged(left: Item, right: Item): boolean {
  if (left.type === 'link' && right.type === 'link') return left.target !== right.target
  if (left.type === 'link' || right.type === 'link' || left.mode !== right.mode) return true
  if (left.type === 'directory' || right.type === 'directory') return left.type !== right.type
  return left.size !== right.size || left.chunks.join() !== right.chunks.join()
}

function getItem(manifest: Manifest, path: string): Item {
  const entry = findEntry(manifest.workspace, path)
  if (entry) return toItem(manifest, entry)
  for (let parent = parentOf(path); parent !== ''; parent = parentOf(parent)) {
    const above = findEntry(manifest.workspace, parent)
    if (above && above.type !== 'directory') throw notAFolder(path)
  }
  throw new CheckpointFault('file_not_found', `"${displayPath(path)}" does not exist`)
}

function toItem(manifest: Manifest, entry: Entry): Item {
  if (entry.type !== 'hardlink') return entry
  const file = findEntry(manifest[entry.root], entry.of)
  if (file?.type !== 'file') throw new Error(`"${entry.path}" is a name of no file`)
  return { ...file, path: entry.path }
}

/** Entries are sorted. */
function findEntry(entries: Entry[], path: string): Entry | undefined {
  let [low, high] = [0, entries.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    const entry = entries[middle]
    const order = entry === undefined ? 1 : comparePaths(entry.path, path)
    if (order === 0) return entry
    if (order < 0) low = middle + 1
    else high = middle
  }
  return undefined
}

const notAFolder = (path: string) =>
  new CheckpointFault(
    'path_invalid',
    `"${displayPath(path)}" goes through a link or a file where a folder is needed`,
  )

const toListed = (item: Item): ListedFile => ({
  path: displayPath(item.path),
  type: item.type,
  size: sizeOf(item),
  modifiedAt: new Date(Math.round(item.mtimeUs / 1000)).toISOString(),
})

const sizeOf = (item: Item): number =>
  item.type === 'file' ? item.size : item.type === 'link' ? item.target.length : 0
