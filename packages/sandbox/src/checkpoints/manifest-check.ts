import { comparePaths, isEntryPath, isLinkTarget, parentOf } from './entry-path.ts'
import { CHUNK_BYTES, type Entry, type HardLinkEntry, MAX_ENTRIES, type RootName } from './manifest-entry.ts'

/** The regular files seen so far, for the hard links that follow. */
export type Files = Record<RootName, Set<string>>

/** Every entry is well-formed, in order, and lies in a folder of its own root. */
export function checkRoot(root: RootName, value: unknown, files: Files): Entry[] {
  if (!Array.isArray(value) || value.length > MAX_ENTRIES) throw new Error(`${root} is not a list of entries`)
  const folders = new Set<string>()
  let previous: string | undefined
  for (const entry of value) {
    if (!isEntry(entry)) throw new Error(`${root} has a malformed entry after ${JSON.stringify(previous)}`)
    const { path } = entry
    const isRoot = previous === undefined && path === '' && entry.type === 'directory'
    if (!isRoot && !isPlaced(path, previous, folders)) {
      throw new Error(`${root} has ${JSON.stringify(path)} where it cannot be`)
    }
    if (entry.type === 'directory') folders.add(path)
    else if (entry.type === 'file') files[root].add(path)
    else if (entry.type === 'hardlink' && !files[entry.root].has(entry.of)) {
      throw new Error(`${root} has a hard link ${JSON.stringify(path)} to no file`)
    }
    previous = path
  }
  if (previous === undefined) throw new Error(`${root} has no root folder`)
  return value as Entry[]
}

function isPlaced(path: string, previous: string | undefined, folders: Set<string>): boolean {
  return (
    previous !== undefined &&
    isEntryPath(path) &&
    comparePaths(previous, path) < 0 &&
    folders.has(parentOf(path))
  )
}

function isEntry(value: unknown): value is Entry {
  if (typeof value !== 'object' || value === null) return false
  const entry = value as Partial<Record<string, unknown>>
  if (typeof entry.path !== 'string') return false
  switch (entry.type) {
    case 'directory':
      return isMode(entry.mode) && Number.isSafeInteger(entry.mtimeUs)
    case 'file':
      return isMode(entry.mode) && Number.isSafeInteger(entry.mtimeUs) && isContent(entry.size, entry.chunks)
    case 'link':
      return Number.isSafeInteger(entry.mtimeUs) && isLinkTarget(entry.target)
    case 'hardlink':
      return isRootName(entry.root) && typeof entry.of === 'string'
    default:
      return false
  }
}

const isRootName = (value: unknown): value is HardLinkEntry['root'] =>
  value === 'workspace' || value === 'home'

const isMode = (value: unknown) => isCount(value) && (value & ~0o1777) === 0

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0

export const isHash = (value: unknown): value is string =>
  typeof value === 'string' && /^[0-9a-f]{64}$/.test(value)

/** No hole of no length, none after another, none at the end, and nothing after the end. */
function isContent(size: unknown, chunks: unknown): boolean {
  if (!isCount(size) || !Array.isArray(chunks)) return false
  let count = 0
  let wasHole = false
  for (const chunk of chunks) {
    const isHole = typeof chunk === 'number'
    if (isHole ? wasHole || !isCount(chunk) || chunk === 0 : !isHash(chunk)) return false
    count += isHole ? chunk : 1
    wasHole = isHole
  }
  return !wasHole && count <= Math.ceil(size / CHUNK_BYTES)
}
