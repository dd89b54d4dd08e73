import type { Stats } from 'node:fs'
import type { FileEntry } from '@ash-ai/shared'
import { aboutPath, codeOf } from './file-errors.ts'
import { Folder, openFolderAt, splitPath, type Workspace } from './workspace-folder.ts'

export interface FileListing {
  files: FileEntry[]
  /** There is more than is listed here. */
  truncated: boolean
}

/** Names read per request. Each folder must be read whole to be sorted, and a workspace may hold millions. */
const MAX_NAMES_READ = 100_000
/** A folder on the way down stays open; below this the rest counts as truncated. */
const MAX_DEPTH = 100

/** Everything below `path`, names in order and each folder before its content. Links are listed, not followed. */
export async function listFiles(
  workspace: Workspace,
  { path, limit }: { path?: string; limit: number },
): Promise<FileListing> {
  const walk: Walk = { files: [], truncated: false, limit, namesLeft: MAX_NAMES_READ }
  if (path === undefined) {
    await using root = await Folder.open(workspace.root)
    await listInto(walk, root, '', 1)
  } else {
    const { parents, name } = splitPath(path)
    await using folder = await aboutPath(path, () => openFolderAt(workspace, [...parents, name]))
    await listInto(walk, folder, `${path}/`, 1)
  }
  return { files: walk.files, truncated: walk.truncated }
}

interface Walk extends FileListing {
  limit: number
  namesLeft: number
}

async function listInto(walk: Walk, folder: Folder, prefix: string, depth: number): Promise<void> {
  for (const name of await readNames(walk, folder)) {
    if (walk.files.length >= walk.limit) {
      walk.truncated = true
      return
    }
    const path = prefix + name.toString()
    const stats = await unlessGone(folder.stat(name))
    if (!stats) continue
    walk.files.push(toEntry(path, stats))
    if (stats.isDirectory()) await listChild(walk, folder, name, path, depth)
  }
}

async function listChild(
  walk: Walk,
  parent: Folder,
  name: Buffer,
  path: string,
  depth: number,
): Promise<void> {
  if (depth === MAX_DEPTH) {
    walk.truncated = true
    return
  }
  await using folder = await unlessGone(parent.openFolder(name))
  if (folder) await listInto(walk, folder, `${path}/`, depth + 1)
}

async function readNames(walk: Walk, folder: Folder): Promise<Buffer[]> {
  const names: Buffer[] = []
  for await (const { name } of folder.items()) {
    if (walk.namesLeft === 0) {
      walk.truncated = true
      break
    }
    walk.namesLeft--
    names.push(name)
  }
  return names.sort(Buffer.compare)
}

/** The sandbox goes on working while we look: what it removes, swaps or locks meanwhile is left out. */
async function unlessGone<Result>(work: Promise<Result>): Promise<Result | undefined> {
  try {
    return await work
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'ELOOP', 'EACCES'].includes(codeOf(error))) return undefined
    throw error
  }
}

function toEntry(path: string, stats: Stats): FileEntry {
  return { path, type: typeOf(stats), size: stats.size, modifiedAt: stats.mtime.toISOString() }
}

function typeOf(stats: Stats): FileEntry['type'] {
  if (stats.isFile()) return 'file'
  if (stats.isDirectory()) return 'directory'
  return stats.isSymbolicLink() ? 'link' : 'other'
}
