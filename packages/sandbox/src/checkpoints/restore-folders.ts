import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, lstatSync, mkdirSync, renameSync, rmSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { faultPoint } from '../fault-point.ts'
import type { Owner } from '../provider.ts'
import { CheckpointFault, toFault } from './checkpoint-fault.ts'
import { DeepPaths } from './deep-paths.ts'
import { syncFolderSync } from './local-blobs.ts'
import { ROOT_NAMES, type RootName } from './manifest-entry.ts'
import { readManifest } from './read-manifest.ts'
import { finishFolders, makeEntries } from './restore-entries.ts'
import { emptyIndex, type ScanIndex, stageIndex } from './scan-index.ts'

export interface RestoreTask {
  tenantId: string
  manifest: string
  roots: Record<RootName, string>
  owner: Owner | undefined
  indexFile: string
  generation: string
}

/** Nobody else can write before the folders are in place, so one tick of the kernel's clock is margin enough. */
const CLOCK_MARGIN_MS = 25

/** Runs inside a thread. Both folders appear whole, the workspace last: one that is there means both are. */
export function restoreFolders(store: { dir: string; sync: boolean }, task: RestoreTask): void {
  const { roots } = task
  if (exists(roots.workspace)) {
    throw new CheckpointFault('checkpoint_failed', 'There is a workspace already')
  }
  const staging = { workspace: stagingOf(roots.workspace), home: stagingOf(roots.home) }
  try {
    removeTrees(staging)
    const index = fill(store, task, staging)
    faultPoint('restore-filled')
    // A home without a workspace is what a crash left between the two moves.
    removeTree(roots.home)
    moveInPlace(staging.home, roots.home, store.sync)
    faultPoint('restore-home')
    moveInPlace(staging.workspace, roots.workspace, store.sync)
    faultPoint('restore-workspace')
    const staged = stageIndex(task.indexFile, index)
    if (staged !== undefined) keepIndex(staged, task.indexFile)
    faultPoint('restore-done')
  } catch (error) {
    try {
      removeTrees(staging)
    } catch {
      // The next attempt begins with it, and the first error is the one to tell.
    }
    throw toFault(error, 'The files could not be restored')
  }
}

/** Without it the next save reads more, and that is all. */
function keepIndex(staged: string, indexFile: string): void {
  try {
    renameSync(staged, indexFile)
  } catch {
    // The files are in place.
  }
}

function fill(
  store: { dir: string; sync: boolean },
  task: RestoreTask,
  staging: Record<RootName, string>,
): ScanIndex {
  const manifest = readManifest(store.dir, task.tenantId, task.manifest)
  const index = emptyIndex(task.generation)
  for (const root of ROOT_NAMES) {
    mkdirSync(staging[root], { mode: 0o700 })
    // Whatever the umask says.
    chmodSync(staging[root], 0o700)
  }
  const [paths, linkPaths] = [openPaths(staging), openPaths(staging)]
  try {
    const restore = { ...store, tenantId: task.tenantId, owner: task.owner, paths, linkPaths, index }
    for (const root of ROOT_NAMES) makeEntries(restore, root, manifest[root])
    for (const root of ROOT_NAMES) finishFolders(restore, root, manifest[root])
  } finally {
    for (const open of [paths, linkPaths]) for (const root of ROOT_NAMES) open[root].close()
  }
  forgetRecent(index, Date.now() - CLOCK_MARGIN_MS)
  return index
}

const openPaths = (staging: Record<RootName, string>): Record<RootName, DeepPaths> => ({
  workspace: new DeepPaths(staging.workspace),
  home: new DeepPaths(staging.home),
})

function forgetRecent({ known }: ScanIndex, settledBeforeMs: number): void {
  for (const root of ROOT_NAMES) {
    for (const [path, { ctimeMs }] of known[root]) {
      if (ctimeMs >= settledBeforeMs) known[root].delete(path)
    }
  }
}

/** Beside its place, so that a move is enough. */
const stagingOf = (root: string) => join(dirname(root), `.${basename(root)}`)

function moveInPlace(from: string, to: string, sync: boolean): void {
  renameSync(from, to)
  if (sync) syncFolderSync(dirname(to))
}

const exists = (path: string) => lstatSync(path, { throwIfNoEntry: false }) !== undefined

function removeTrees(staging: Record<RootName, string>): void {
  for (const root of ROOT_NAMES) removeTree(staging[root])
}

function removeTree(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true })
  } catch {
    // A tree deeper than any path, or folders that their owner closed to itself: these tools cope with both.
    spawnSync('chmod', ['-R', 'u+rwX', '--', path], { stdio: 'ignore' })
    execFileSync('rm', ['-rf', '--', path], { stdio: 'ignore' })
  }
}
