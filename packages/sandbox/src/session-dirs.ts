import { execFile } from 'node:child_process'
import { constants } from 'node:fs'
import { chmod, chown, copyFile, lstat, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { copyTree, type Layer } from './layer.ts'
import type { Owner } from './provider.ts'

const run = promisify(execFile)

/** The folders of one session on this host. */
export interface SessionDirs {
  /** Holds the others. */
  root: string
  /** Holds workspace and home, and has the room that the session may take. */
  disk: string
  workspace: string
  home: string
  /** Sockets of the live sandbox; gone with it. */
  run: string
}

export function sessionDirs(dataDir: string, sessionId: string): SessionDirs {
  const root = join(dataDir, 'sandboxes', sessionId)
  const disk = join(root, 'disk')
  return { root, disk, workspace: join(disk, 'workspace'), home: join(disk, 'home'), run: join(root, 'run') }
}

/**
 * Makes a session's folders: the workspace as a copy of the agent's, or both as copies of those in a layer, or both
 * empty. All or nothing: what is half made is begun anew.
 */
export async function createSessionDirs(
  dirs: SessionDirs,
  source: string | Layer | undefined,
  owner: Owner | undefined,
): Promise<void> {
  if (await exists(dirs.workspace)) return
  await mkdir(dirs.disk, { recursive: true, mode: 0o711 })
  // The umask may have taken the search bit that sandbox users need.
  await Promise.all([dirs.root, dirs.disk].map((folder) => chmod(folder, 0o711)))
  if (source === undefined) return makeEmpty(dirs, owner)
  if (typeof source === 'string') {
    await makeDir(dirs.home, 0o700, owner)
    await putInPlace(dirs.workspace, (staging) => copyAgent(source, staging, owner))
    return
  }
  await remove(dirs.home)
  await putInPlace(dirs.home, (staging) => copyTree(source.home, staging, owner))
  // Last: a session that has a workspace has everything.
  await putInPlace(dirs.workspace, (staging) => copyTree(source.workspace, staging, owner))
  await markSetUp(dirs)
}

const markerOf = ({ root }: Pick<SessionDirs, 'root'>) => join(root, 'installed')

/** Whether the agent's set-up has been done for these folders. */
export const isSetUp = async (dirs: Pick<SessionDirs, 'root'>) =>
  (await lstat(markerOf(dirs)).catch(() => undefined)) !== undefined

export async function markSetUp(dirs: Pick<SessionDirs, 'root'>): Promise<void> {
  await writeFile(markerOf(dirs), '')
}

/** Side by side: interpreters that run for milliseconds wait for this. */
async function makeEmpty({ home, workspace }: SessionDirs, owner: Owner | undefined): Promise<void> {
  const staging = stagingOf(workspace)
  await Promise.all([makeDir(home, 0o700, owner), makeDir(staging, 0o700, owner)])
  await rename(staging, workspace)
}

/** On a disk that is nobody's yet: a new file system takes its time for the first folders in it. */
export async function makeEmptyAhead(disk: string): Promise<void> {
  for (const folder of ['home', stagingOf('workspace')]) await mkdir(join(disk, folder), { mode: 0o700 })
}

const stagingOf = (folder: string) => join(dirname(folder), `.${basename(folder)}`)

async function putInPlace(folder: string, fill: (staging: string) => Promise<void>): Promise<void> {
  const staging = stagingOf(folder)
  await remove(staging)
  try {
    await fill(staging)
    await chmod(staging, 0o700)
    await rename(staging, folder)
  } catch (error) {
    await remove(staging)
    throw error
  }
}

/** Whether there is anything by that name. Whatever else keeps us from knowing is not taken for a no. */
export async function exists(path: string): Promise<boolean> {
  try {
    await lstat(path)
    return true
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return false
    throw error
  }
}

/** Only for a session whose sandbox is gone: nothing may be changing the tree meanwhile. */
export async function removeSessionDirs({ root }: Pick<SessionDirs, 'root'>): Promise<void> {
  await remove(root)
}

async function remove(folder: string): Promise<void> {
  try {
    await rm(folder, { recursive: true, force: true })
  } catch {
    // A tree deeper than any path, or folders that their owner closed to itself: these tools cope with both.
    await run('chmod', ['-R', 'u+rwX', '--', folder]).catch(() => {})
    await run('rm', ['-rf', '--', folder])
  }
}

/** Copies what an agent's deployment wrote: folders and regular files, nothing else. */
async function copyAgent(from: string, to: string, owner: Owner | undefined): Promise<void> {
  await makeDir(to, 0o755, owner)
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)]
    if (entry.isDirectory()) {
      await copyAgent(source, target, owner)
    } else if (entry.isFile()) {
      await copyFile(source, target, constants.COPYFILE_FICLONE)
      await giveTo(target, owner)
    }
  }
}

async function makeDir(path: string, mode: number, owner: Owner | undefined): Promise<void> {
  await mkdir(path, { recursive: true, mode })
  await giveTo(path, owner)
}

async function giveTo(path: string, owner: Owner | undefined): Promise<void> {
  if (owner) await chown(path, owner.uid, owner.gid)
}
