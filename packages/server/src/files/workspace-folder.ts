import { constants, lstatSync, opendirSync } from 'node:fs'
import {
  chmod,
  type FileHandle,
  lchown,
  link,
  lstat,
  mkdir,
  open,
  opendir,
  readlink,
  rename,
  rmdir,
  symlink,
  unlink,
} from 'node:fs/promises'
import { setImmediate } from 'node:timers/promises'
import { AshError, isRelativePath, MAX_PATH_CHARS } from '@ash-ai/shared'

/** A folder that untrusted code writes to, and the user its files belong to. */
export interface Workspace {
  root: string
  owner?: Owner
  /** No file written through the API may be longer; default MAX_FILE_BYTES. */
  maxFileBytes?: number
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
/** Linux: names a file without opening it, so that what its owner locked away can be named, too. */
const O_PATH = 0o10000000
const NAMES_AT_ONCE = 256

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

  /** The same at once, for many in a row. */
  statNow(name: Name) {
    return lstatSync(this.#child(name))
  }

  /** The same, exact to the nanosecond. */
  statExactly(name: Name) {
    return lstat(this.#child(name), { bigint: true })
  }

  /** The text of a link, which need not be that of a path. */
  readLink(name: Name): Promise<Buffer> {
    return readlink(this.#child(name), { encoding: 'buffer' })
  }

  /** At most `max` names, in no order, each byte of them a Latin-1 character. */
  async rawNames(max: number): Promise<{ rawNames: string[]; isComplete: boolean }> {
    const rawNames: string[] = []
    // Read at once, a buffer at a time: to wait for each name would take ten times as long.
    using items = opendirSync(this.#base, { encoding: 'latin1', bufferSize: NAMES_AT_ONCE })
    for (let item = items.readSync(); item; item = items.readSync()) {
      if (rawNames.length >= max) return { rawNames, isComplete: false }
      if (rawNames.push(item.name) % NAMES_AT_ONCE === 0) await setImmediate()
    }
    return { rawNames, isComplete: true }
  }

  async *items(): AsyncGenerator<FolderItem> {
    for await (const entry of await opendir(this.#base, { encoding: 'latin1', bufferSize: 256 })) {
      yield { name: Buffer.from(entry.name, 'latin1'), isFolder: entry.isDirectory() }
    }
  }

  async createFolder(name: Name, owner: Owner | undefined): Promise<Folder> {
    await mkdir(this.#child(name), 0o755)
    const folder = await this.openFolder(name)
    await folder.#handle.chmod(0o755)
    if (owner) await folder.#handle.chown(owner.uid, owner.gid)
    return folder
  }

  /** Of this folder itself. */
  async setOwnMode(mode: number): Promise<void> {
    await this.#handle.chmod(mode)
  }

  async createLink(name: Name, target: Buffer, owner: Owner | undefined): Promise<void> {
    await symlink(target, this.#child(name))
    if (owner) await lchown(this.#child(name), owner.uid, owner.gid)
  }

  /** Of a file or a folder; anything else is refused. */
  async changeMode(name: Name, mode: number): Promise<'changed' | 'refused'> {
    const isLinux = process.platform === 'linux'
    await using handle = await this.openFile(name, isLinux ? O_PATH : O_RDONLY)
    const stats = await handle.stat()
    if (!stats.isFile() && !stats.isDirectory()) return 'refused'
    // Through the descriptor: by its name it could be another file by now.
    await (isLinux ? chmod(`/proc/self/fd/${handle.fd}`, mode) : handle.chmod(mode))
    return 'changed'
  }

  /** Unlike `move` never replaces anything: throws EEXIST. Not for folders. */
  async moveToNew(name: Name, target: Folder, targetName: string): Promise<void> {
    await link(this.#child(name), target.#child(targetName))
    await this.unlink(name)
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
