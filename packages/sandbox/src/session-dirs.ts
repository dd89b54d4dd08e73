import { execFile } from 'node:child_process'
import { constants } from 'node:fs'
import { chmod, chown, copyFile, lstat, mkdir, readdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
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

/** Makes a session's folders, the workspace as a copy of the agent's. All or nothing: a half-made one is begun anew. */
export async function createSessionDirs(
  dirs: SessionDirs,
  agentDir: string,
  owner: Owner | undefined,
): Promise<void> {
  if (await lstat(dirs.workspace).catch(() => undefined)) return
  for (const folder of [dirs.root, dirs.disk]) {
    await mkdir(folder, { recursive: true, mode: 0o711 })
    // The umask may have taken the search bit that sandbox users need.
    await chmod(folder, 0o711)
  }
  await makeDir(dirs.home, 0o700, owner)
  const staging = join(dirs.disk, '.workspace')
  await rm(staging, { recursive: true, force: true })
  try {
    await copyTree(agentDir, staging, owner)
    await chmod(staging, 0o700)
    await rename(staging, dirs.workspace)
  } catch (error) {
    await rm(staging, { recursive: true, force: true })
    throw error
  }
}

/** Only for a session whose sandbox is gone: nothing may be changing the tree meanwhile. */
export async function removeSessionDirs(dirs: Pick<SessionDirs, 'root'>): Promise<void> {
  try {
    await rm(dirs.root, { recursive: true, force: true })
  } catch {
    // A tree deeper than any path, or folders that their owner closed to itself: these tools cope with both.
    await run('chmod', ['-R', 'u+rwX', '--', dirs.root]).catch(() => {})
    await run('rm', ['-rf', '--', dirs.root])
  }
}

/** Copies what an agent's deployment wrote: folders and regular files, nothing else. */
async function copyTree(from: string, to: string, owner: Owner | undefined): Promise<void> {
  await makeDir(to, 0o755, owner)
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)]
    if (entry.isDirectory()) {
      await copyTree(source, target, owner)
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
