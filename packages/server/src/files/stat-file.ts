import { AshError, type FileStat } from '@ash-ai/shared'
import type { FileSource } from './checkpoint-files.ts'
import { aboutPath } from './file-errors.ts'
import { etagOf, storedEtagOf } from './http-conditions.ts'
import { typeOf, walkFiles } from './walk-files.ts'
import { openParent, splitPath, type Workspace } from './workspace-folder.ts'

/** What is at `path`, a link itself and not what it leads to. */
export async function statFile(source: FileSource, path: string): Promise<FileStat> {
  return 'checkpoint' in source ? statStored(source, path) : statLive(source, path)
}

async function statLive(workspace: Workspace, path: string): Promise<FileStat> {
  return aboutPath(path, async () => {
    const { folder, name } = await openParent(workspace, path)
    await using parent = folder
    const stats = await parent.statExactly(name)
    const type = typeOf(stats)
    return {
      path,
      type,
      size: Number(stats.size),
      mode: formatMode(Number(stats.mode)),
      modifiedAt: toTime(stats.mtimeNs),
      ...(type === 'file' && { etag: etagOf(stats) }),
      ...(type === 'link' && { linkTarget: (await parent.readLink(name)).toString() }),
    }
  })
}

/** As a listing has it: rounded, where Node cuts off what it knows so exactly. */
const toTime = (ns: bigint) =>
  new Date(Math.round(Number(ns / 1_000_000n) + Number(ns % 1_000_000n) / 1e6)).toISOString()

const formatMode = (mode: number) => (mode & 0o7777).toString(8).padStart(4, '0')

async function statStored(source: Exclude<FileSource, Workspace>, path: string): Promise<FileStat> {
  const { parents } = splitPath(path)
  let found: FileStat | undefined
  const parent = parents.length === 0 ? undefined : parents.join('/')
  await walkFiles(source, { path: parent, recursive: false }, ({ entry }) => {
    if (entry.path === path) found = entry
    return found === undefined
  })
  if (!found) throw new AshError('file_not_found', `"${path}" does not exist`)
  const { type, size, modifiedAt } = found
  return type === 'file' ? { ...found, etag: storedEtagOf(size, new Date(modifiedAt)) } : found
}
