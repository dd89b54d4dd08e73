import { randomUUID } from 'node:crypto'
import { constants } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { AshError } from '@ash-ai/shared'
import { aboutPath, codeOf } from './file-errors.ts'
import { descend, Folder, openFolderAt, splitPath, type Workspace } from './workspace-folder.ts'

export interface WriteOptions {
  maxBytes: number
  /** Default: as the file that is replaced, else no. */
  executable?: boolean
}

export type Content = Iterable<Uint8Array> | AsyncIterable<Uint8Array>

/**
 * Writes a file, making the folders it needs. It appears complete or not at all: the bytes are collected in a
 * temporary file at the root and moved to their place at the end.
 */
export async function writeFile(
  workspace: Workspace,
  path: string,
  content: Content,
  options: WriteOptions,
): Promise<{ size: number }> {
  const existing = await checkWritable(workspace, path)
  const isExecutable = options.executable ?? existing?.isExecutable ?? false
  return aboutPath(path, async () => {
    await using root = await Folder.open(workspace.root)
    const temporary = `.ash-write-${randomUUID()}`
    try {
      const size = await writeTemporary(workspace, root, temporary, content, {
        ...options,
        path,
        isExecutable,
      })
      await moveIntoPlace(workspace, root, temporary, path)
      return { size }
    } catch (error) {
      await root.unlink(temporary).catch(() => {})
      throw error
    }
  })
}

/**
 * Refuses a path that cannot be written, and changes nothing. The workspace may change right after, so this
 * is for a clear answer; safety does not rest on it.
 */
export async function checkWritable(
  workspace: Workspace,
  path: string,
): Promise<{ isExecutable: boolean } | undefined> {
  const { parents, name } = splitPath(path)
  try {
    await using folder = await openFolderAt(workspace, parents)
    const stats = await folder.stat(name)
    if (stats.isSymbolicLink())
      throw new AshError('path_invalid', `"${path}" is a link, and links are not followed`)
    if (!stats.isFile()) throw new AshError('not_a_file', `"${path}" is not a regular file`)
    return { isExecutable: (stats.mode & 0o100) !== 0 }
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined
    return aboutPath(path, () => Promise.reject(error))
  }
}

async function writeTemporary(
  { owner }: Workspace,
  root: Folder,
  name: string,
  content: Content,
  { path, maxBytes, isExecutable }: { path: string; maxBytes: number; isExecutable: boolean },
): Promise<number> {
  const { O_CREAT, O_EXCL, O_WRONLY } = constants
  await using file = await root.openFile(name, O_CREAT | O_EXCL | O_WRONLY, 0o600)
  const size = await writeAll(file, content, path, maxBytes)
  await file.chmod(isExecutable ? 0o755 : 0o644)
  if (owner) await file.chown(owner.uid, owner.gid)
  await file.sync()
  return size
}

async function writeAll(file: FileHandle, content: Content, path: string, maxBytes: number): Promise<number> {
  let size = 0
  for await (const chunk of content) {
    size += chunk.byteLength
    if (size > maxBytes) {
      throw new AshError('payload_too_large', `"${path}" is longer than the ${maxBytes} bytes allowed`)
    }
    await file.writeFile(chunk)
  }
  return size
}

async function moveIntoPlace(
  workspace: Workspace,
  root: Folder,
  temporary: string,
  path: string,
): Promise<void> {
  const { parents, name } = splitPath(path)
  await using folder = await descend(workspace, parents, (parent, part) =>
    openOrCreate(parent, part, workspace.owner),
  )
  await root.move(temporary, folder, name)
}

async function openOrCreate(parent: Folder, name: string, owner: Workspace['owner']): Promise<Folder> {
  try {
    return await parent.openFolder(name)
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error
  }
  try {
    return await parent.createFolder(name, owner)
  } catch (error) {
    // Somebody, perhaps the agent, made it meanwhile.
    if (codeOf(error) === 'EEXIST') return parent.openFolder(name)
    throw error
  }
}
