import { constants } from 'node:fs'
import { type FileHandle, lstat, mkdir, open, opendir, rename, rmdir, unlink } from 'node:fs/promises'
import { AshError, isRelativePath, MAX_PATH_CHARS } from '@ash-ai/shared'

/** A folder that untrusted code writes to, and the user its files belong to. */
export interface Workspace {
  root: string
  owner?: Owner
}
export interface Owner {
  uid: number
  gid: number
}

/** A name as the file system has it: bytes, which need not be UTF-8. */
export type Name = string | Buffer

export interface FolderItem {
  name: Buffer
  isFolder: boolean
}

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_NOCTTY } = constants
const NEVER_FOLLOW_OR_WAIT = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY

/**
 * A directory held open. Its children are reached through the descriptor (`/proc/self/fd/<n>/<name>`), one
 * name at a time and never through a link, so that no swap of a directory for a link on the way leads out.
 * Only Linux has those paths: elsewhere plain paths are used, good enough for the `process` provider, which
 * isolates nothing anyway.
 */
export class Folder {
  readonly #handle: FileHandle
  readonly #base: string

  static async open(path: Name): Promise<Folder> {
    const handle = await open(path, O_RDONLY | O_DIRECTORY | NEVER_FOLLOW_OR_WAIT)
    return new Folder(handle, process.platform === 'linux' ? `/proc/self/fd/${handle.fd}` : path.toString())
  }

  private constructor(handle: FileHandle, base: string) {
    this.#handle = handle
    this.#base = base
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close()
  }

  openFolder(name: Name): Promise<Folder> {
    return Folder.open(this.#child(name))
  }

  /** `flags` beside those that keep it from following a link or waiting for a pipe's other end. */
  openFile(name: Name, flags: number, mode?: number): Promise<FileHandle> {
    return open(this.#child(name), flags | NEVER_FOLLOW_OR_WAIT, mode)
  }

  /** Of the child itself, also where it is a link. */
  stat(name: Name) {
    return lstat(this.#child(name))
  }

  async *items(): AsyncGenerator<FolderItem> {
    for await (const entry of await opendir(this.#base, { encoding: 'latin1', bufferSize: 256 })) {
      yield { name: Buffer.from(entry.name, 'latin1'), isFolder: entry.isDirectory() }
    }
  }

  async createFolder(name: string, owner: Owner | undefined): Promise<Folder> {
    await mkdir(this.#child(name), 0o755)
    const folder = await this.openFolder(name)
    await folder.#handle.chmod(0o755)
    if (owner) await folder.#handle.chown(owner.uid, owner.gid)
    return folder
  }

  move(name: Name, target: Folder, targetName: string): Promise<void> {
    return rename(this.#child(name), target.#child(targetName))
  }

  unlink(name: Name): Promise<void> {
    return unlink(this.#child(name))
  }

  removeFolder(name: Name): Promise<void> {
    return rmdir(this.#child(name))
  }

  #child(name: Name): string | Buffer {
    if (typeof name === 'string') return `${this.#base}/${name}`
    return Buffer.concat([Buffer.from(`${this.#base}/`), name])
  }
}

/** The folder that holds `path`, and its last name. Throws file_not_found or path_invalid. */
export async function openParent(
  workspace: Workspace,
  path: string,
): Promise<{ folder: Folder; name: string }> {
  const { parents, name } = splitPath(path)
  return { folder: await openFolderAt(workspace, parents), name }
}

export async function openFolderAt(workspace: Workspace, parts: string[]): Promise<Folder> {
  return descend(workspace, parts, (folder, part) => folder.openFolder(part))
}

/** Goes down `parts` from the root, closing what it leaves behind. */
export async function descend(
  workspace: Workspace,
  parts: string[],
  step: (folder: Folder, part: string) => Promise<Folder>,
): Promise<Folder> {
  let folder = await Folder.open(workspace.root)
  for (const part of parts) {
    await using left = folder
    folder = await step(left, part)
  }
  return folder
}

/** Checks a path from outside before anything is opened. */
export function splitPath(path: string): { parents: string[]; name: string } {
  if (path.length > MAX_PATH_CHARS || !isRelativePath(path)) {
    throw new AshError(
      'path_invalid',
      'A path must be relative, without "..", "." or empty parts, backslashes or NUL',
    )
  }
  const parents = path.split('/')
  return { name: parents.pop() ?? '', parents }
}
