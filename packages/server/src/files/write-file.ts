import { randomUUID } from 'node:crypto'
import { constants } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { AshError } from '@ash-ai/shared'
import { aboutPath, codeOf } from './file-errors.ts'
import { etagOf, type WriteConditions } from './http-conditions.ts'
import { assertConditions, placeFile } from './place-file.ts'
import { Folder, openFolderAt, splitPath, type Workspace } from './workspace-folder.ts'

export interface WriteOptions extends WriteConditions {
  maxBytes: number
  /** Permission bits. */
  mode?: number | undefined
  /** Default: as the file that is replaced, else no. */
  executable?: boolean
}

export type Content = Iterable<Uint8Array> | AsyncIterable<Uint8Array>

/** A file whose bytes are all there, but not yet in its place. Disposed of before that, it leaves nothing. */
export interface StagedFile extends AsyncDisposable {
  size: number
  /** Puts it in its place. */
  commit(): Promise<{ size: number; etag: string }>
}

/**
 * Writes a file, making the folders it needs. It appears complete or not at all: the bytes are collected in a
 * temporary file at the root and moved to their place at the end.
 */
export async function writeFile(
  workspace: Workspace,
  path: string,
  content: Content,
  options: WriteOptions,
): Promise<{ size: number; etag: string }> {
  await using staged = await stageFile(workspace, path, content, options)
  return await staged.commit()
}

/** The first half of a write: refuses what can be refused, and takes in the bytes. */
export async function stageFile(
  workspace: Workspace,
  path: string,
  content: Content,
  options: WriteOptions,
): Promise<StagedFile> {
  const existing = await checkWritable(workspace, path)
  const conditions = { ifMatch: options.ifMatch, ifNoneMatch: options.ifNoneMatch }
  // For a quick answer; whoever puts it in its place looks again.
  assertConditions(conditions, existing?.etag, path)
  const isExecutable = options.executable ?? existing?.isExecutable ?? false
  const mode = options.mode ?? (isExecutable ? 0o755 : 0o644)
  const temporary = `.ash-write-${randomUUID()}`
  const atRoot = async <Result>(work: (root: Folder) => Promise<Result>) => {
    await using root = await Folder.open(workspace.root)
    return await work(root)
  }
  const discard = () => atRoot((root) => root.unlink(temporary)).catch(() => {})
  try {
    const target = { path, mode, maxBytes: options.maxBytes }
    const size = await aboutPath(path, () =>
      atRoot((root) => writeTemporary(workspace, root, temporary, content, target)),
    )
    const placing = { ...conditions, overwrite: conditions.ifNoneMatch !== '*' }
    const commit = async () => {
      const etag = await atRoot((root) => placeFile(workspace, root, temporary, path, placing))
      return { size, etag }
    }
    return { size, commit, [Symbol.asyncDispose]: discard }
  } catch (error) {
    await discard()
    throw error
  }
}

/**
 * Refuses a path that cannot be written, and changes nothing. The workspace may change right after, so this
 * is for a clear answer; safety does not rest on it.
 */
export async function checkWritable(
  workspace: Workspace,
  path: string,
): Promise<{ isExecutable: boolean; etag: string } | undefined> {
  const { parents, name } = splitPath(path)
  try {
    await using folder = await openFolderAt(workspace, parents)
    const stats = await folder.statExactly(name)
    if (stats.isSymbolicLink())
      throw new AshError('path_invalid', `"${path}" is a link, and links are not followed`)
    if (!stats.isFile()) throw new AshError('not_a_file', `"${path}" is not a regular file`)
    return { isExecutable: (stats.mode & 0o100n) !== 0n, etag: etagOf(stats) }
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
  { path, maxBytes, mode }: { path: string; maxBytes: number; mode: number },
): Promise<number> {
  const { O_CREAT, O_EXCL, O_WRONLY } = constants
  await using file = await root.openFile(name, O_CREAT | O_EXCL | O_WRONLY, 0o600)
  if (owner) await file.chown(owner.uid, owner.gid)
  const size = await writeAll(file, content, path, maxBytes)
  // At the end: changing the owner, or writing, may take bits away.
  await file.chmod(mode)
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
