import type { Stats } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { AshError, type FileEntry } from '@ash-ai/shared'
import type { FileSource } from './checkpoint-files.ts'
import { aboutPath, codeOf } from './file-errors.ts'
import { Folder, type Name, openFolderAt, splitPath, type Workspace } from './workspace-folder.ts'

export interface WalkOptions {
  /** Folder to begin in; default the whole workspace. */
  path?: string | undefined
  recursive: boolean
  /** Goes on after this one: the `rawPath` of an item seen before. */
  after?: string | undefined
}

interface WalkedItem {
  /** The bytes of its path as Latin-1 characters: names need not be UTF-8. */
  rawPath: string
  entry: FileEntry
  /** Of a live file. */
  stats?: Stats
}

/** Takes one item; false stops the walk before it. */
export type Visit = (item: WalkedItem) => boolean

/** Names read per request. Each folder must be read whole to be sorted, and a workspace may hold millions. */
const MAX_NAMES_READ = 100_000
/** A folder on the way down stays open; below this the rest is left out. */
const MAX_DEPTH = 100
/** Each takes some microseconds, ten times as long if it were waited for. After so many others have their turn. */
const STATS_AT_ONCE = 32

/**
 * Visits everything below `path`, names in the order of their bytes and each folder before its content. Links are
 * visited, not followed. Says whether everything was visited.
 */
export async function walkFiles(source: FileSource, options: WalkOptions, visit: Visit): Promise<boolean> {
  const after = toParts(options)
  if ('checkpoint' in source) return walkCheckpoint(source.checkpoint, options, after, visit)
  const { recursive, path } = options
  const walk: Walk = { visit, recursive, namesLeft: MAX_NAMES_READ, isComplete: true, isStopped: false }
  await using folder = await openStart(source, path)
  const prefix = path === undefined ? '' : `${path}/`
  const rawPrefix = Buffer.from(prefix).toString('latin1')
  await walkInto(walk, folder, { prefix, rawPrefix, after, depth: 1 })
  return walk.isComplete
}

async function openStart(workspace: Workspace, path: string | undefined): Promise<Folder> {
  if (path === undefined) return Folder.open(workspace.root)
  const { parents, name } = splitPath(path)
  return aboutPath(path, () => openFolderAt(workspace, [...parents, name]))
}

/** The names that lead from where the walk begins to where it goes on. */
function toParts({ path, after }: WalkOptions): string[] | undefined {
  if (after === undefined) return undefined
  const rawPrefix = path === undefined ? '' : `${Buffer.from(path).toString('latin1')}/`
  if (!after.startsWith(rawPrefix))
    throw new AshError('validation_failed', 'cursor: is not one of this listing', {
      details: [{ path: 'cursor', message: 'is not one of this listing' }],
    })
  return after.slice(rawPrefix.length).split('/')
}

interface Walk {
  visit: Visit
  recursive: boolean
  namesLeft: number
  isComplete: boolean
  isStopped: boolean
}

interface Place {
  /** Ends with a slash, where it is not the root. */
  prefix: string
  rawPrefix: string
  after: string[] | undefined
  depth: number
}

async function walkInto(walk: Walk, folder: Folder, place: Place): Promise<void> {
  const [first] = place.after ?? []
  const names = (await readNames(walk, folder)).filter((name) => first === undefined || name >= first)
  for (const [index, name] of names.entries()) {
    if (index % STATS_AT_ONCE === 0) await setImmediate()
    const found = unlessGone(() => folder.statNow(toName(name)))
    if (!found) continue
    const child = placeOf(place, name)
    const wasVisited = name === first
    if (!wasVisited && !walk.visit(toItem(child, found))) return stop(walk)
    if (walk.recursive && found.isDirectory()) await walkBelow(walk, folder, name, child)
    if (walk.isStopped) return
  }
}

async function walkBelow(walk: Walk, parent: Folder, name: string, place: Place): Promise<void> {
  if (place.depth > MAX_DEPTH) {
    walk.isComplete = false
    return
  }
  await using folder = await parent.openFolder(toName(name)).catch((error: unknown) =>
    unlessGone(() => {
      throw error
    }),
  )
  if (folder) await walkInto(walk, folder, place)
}

function stop(walk: Walk): void {
  walk.isStopped = true
  walk.isComplete = false
}

/** What a child has before the names of its own children. */
function placeOf({ prefix, rawPrefix, after, depth }: Place, name: string): Place {
  const rest = after && after.length > 1 && after[0] === name ? after.slice(1) : undefined
  return {
    prefix: `${prefix}${toName(name)}/`,
    rawPrefix: `${rawPrefix}${name}/`,
    after: rest,
    depth: depth + 1,
  }
}

/** For system calls, which take text quicker than bytes. */
const toName = (rawName: string): Name =>
  /[^\0-\x7f]/.test(rawName) ? Buffer.from(rawName, 'latin1') : rawName

function toItem({ prefix, rawPrefix }: Place, stats: Stats): WalkedItem {
  const { size, mtime } = stats
  const entry = { path: prefix.slice(0, -1), type: typeOf(stats), size, modifiedAt: mtime.toISOString() }
  return { rawPath: rawPrefix.slice(0, -1), entry, stats }
}

async function readNames(walk: Walk, folder: Folder): Promise<string[]> {
  const { rawNames, isComplete } = await folder.rawNames(walk.namesLeft)
  walk.namesLeft -= rawNames.length
  if (!isComplete) walk.isComplete = false
  // One character for each byte: the order of the text is that of the bytes.
  return rawNames.sort()
}

/** The sandbox goes on working while we look: what it removes, swaps or locks meanwhile is left out. */
function unlessGone<Result>(work: () => Result): Result | undefined {
  try {
    return work()
  } catch (error) {
    if (!GONE.has(codeOf(error))) throw error
  }
}
const GONE: ReadonlySet<string> = new Set(['ENOENT', 'ENOTDIR', 'ELOOP', 'EACCES'])

export function typeOf(stats: Pick<Stats, 'isFile' | 'isDirectory' | 'isSymbolicLink'>): FileEntry['type'] {
  if (stats.isFile()) return 'file'
  if (stats.isDirectory()) return 'directory'
  return stats.isSymbolicLink() ? 'link' : 'other'
}

type Checkpoint = Extract<FileSource, { checkpoint: unknown }>['checkpoint']

async function walkCheckpoint(
  checkpoint: Checkpoint,
  { path, recursive }: WalkOptions,
  after: string[] | undefined,
  visit: Visit,
): Promise<boolean> {
  const prefixLength = path === undefined ? 0 : Buffer.byteLength(path) + 1
  const list = { limit: MAX_NAMES_READ, ...(path !== undefined && { path }) }
  const { files, truncated } = await checkpoint.list(list)
  for (const entry of files) {
    const rawPath = Buffer.from(entry.path).toString('latin1')
    const below = rawPath.slice(prefixLength)
    if (!recursive && below.includes('/')) continue
    if (after && compareParts(below.split('/'), after) <= 0) continue
    if (!visit({ rawPath, entry })) return false
  }
  return !truncated
}

function compareParts(left: string[], right: string[]): number {
  for (const [index, name] of left.entries()) {
    const other = right[index]
    if (other === undefined) return 1
    if (name !== other) return name < other ? -1 : 1
  }
  return left.length - right.length
}
