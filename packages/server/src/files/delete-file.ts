import { randomUUID } from 'node:crypto'
import { AshError } from '@ash-ai/shared'
import { aboutPath, codeOf } from './file-errors.ts'
import { type Folder, openParent, type Workspace } from './workspace-folder.ts'

/** Folders held open at once on the way down. */
const MAX_DEPTH = 64
/** Each pass takes off MAX_DEPTH levels or more; an agent that keeps writing cannot keep us here for ever. */
const MAX_PASSES = 2000

/** Removes a file, a link (not what it points to), or a folder: with all it holds, or only if it holds nothing. */
export async function deleteFile(
  workspace: Workspace,
  path: string,
  { recursive = true } = {},
): Promise<void> {
  await aboutPath(path, async () => {
    const { folder, name } = await openParent(workspace, path)
    await using parent = folder
    const stats = await parent.stat(name)
    if (!stats.isDirectory()) return await parent.unlink(name)
    if (recursive) await emptyFolder(parent, name, path)
    await parent.removeFolder(name)
  })
}

async function emptyFolder(parent: Folder, name: string, path: string): Promise<void> {
  await using top = await parent.openFolder(name)
  for (let pass = 0; pass < MAX_PASSES; pass++) {
    if (!(await removeItems(top, top, 1))) return
  }
  throw new AshError('session_conflict', `"${path}" is being written to while it is deleted. Try again.`)
}

/** Says whether it found anything; if so, something may be left. */
async function removeItems(folder: Folder, top: Folder, depth: number): Promise<boolean> {
  let hasItems = false
  for await (const { name, isFolder } of folder.items()) {
    hasItems = true
    await unlessChanged(isFolder ? removeChild(folder, name, top, depth) : folder.unlink(name))
  }
  return hasItems
}

async function removeChild(parent: Folder, name: Buffer, top: Folder, depth: number): Promise<void> {
  if (depth === MAX_DEPTH) {
    // Too deep to hold every folder on the way open: a later pass finds the rest at the top.
    await parent.move(name, top, `.ash-delete-${randomUUID()}`)
    return
  }
  {
    await using folder = await parent.openFolder(name)
    await removeItems(folder, top, depth + 1)
  }
  await parent.removeFolder(name)
}

/** The agent may add, remove or swap names under our hands; the next pass sees what became of them. */
async function unlessChanged(work: Promise<void>): Promise<void> {
  try {
    await work
  } catch (error) {
    if (!['ENOENT', 'ENOTEMPTY', 'EEXIST', 'ENOTDIR', 'EISDIR', 'ELOOP'].includes(codeOf(error))) throw error
  }
}
