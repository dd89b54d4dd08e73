import { randomUUID } from 'node:crypto'
import { AshError } from '@ash-ai/shared'
import { copyItem } from './copy-items.ts'
import { deleteFile } from './delete-file.ts'
import { aboutPath } from './file-errors.ts'
import { ensureFolders, placeFile } from './place-file.ts'
import { Folder, openFolderAt, openParent, splitPath, type Workspace } from './workspace-folder.ts'

/** Makes a folder: with `parents` also those above it, and it may be there already. */
export async function makeFolder(workspace: Workspace, path: string, parents: boolean): Promise<void> {
  const { parents: above, name } = splitPath(path)
  await aboutPath(path, async () => {
    if (parents) {
      await using _folder = await ensureFolders(workspace, [...above, name])
      return
    }
    await using parent = await openFolderAt(workspace, above)
    await using _folder = await parent.createFolder(name, workspace.owner)
  })
}

export interface FromTo {
  from: string
  to: string
  overwrite: boolean
}

/** Renames a file, a folder with all it holds, or a link. */
export async function moveFile(workspace: Workspace, { from, to, overwrite }: FromTo): Promise<void> {
  assertApart(from, to)
  await aboutPath(from, async () => {
    const { folder, name } = await openParent(workspace, from)
    await using parent = folder
    // Before any folder is made for it.
    await parent.stat(name)
    await placeFile(workspace, parent, name, to, { overwrite })
  })
}

/**
 * Copies a file, or a folder with all it holds: links as links, and nothing of what is neither file, folder nor link.
 * It appears complete or not at all.
 */
export async function copyFile(workspace: Workspace, { from, to, overwrite }: FromTo): Promise<void> {
  assertApart(from, to)
  const temporary = `.ash-copy-${randomUUID()}`
  await using root = await Folder.open(workspace.root)
  try {
    await aboutPath(from, async () => {
      const { folder, name } = await openParent(workspace, from)
      await using parent = folder
      await copyItem({ workspace, from }, parent, name, root, temporary)
    })
    await placeFile(workspace, root, temporary, to, { overwrite })
  } catch (error) {
    await deleteFile(workspace, temporary).catch(() => {})
    throw error
  }
}

/** Permission bits of a file or a folder. */
export async function changeMode(workspace: Workspace, path: string, mode: number): Promise<void> {
  await aboutPath(path, async () => {
    const { folder, name } = await openParent(workspace, path)
    await using parent = folder
    const outcome = await parent.changeMode(name, mode)
    if (outcome === 'refused') throw new AshError('path_invalid', `"${path}" is neither a file nor a folder`)
  })
}

function assertApart(from: string, to: string): void {
  splitPath(from)
  splitPath(to)
  if (to === from || to.startsWith(`${from}/`))
    throw new AshError('path_invalid', `"${from}" cannot be put into itself, which "${to}" is`)
}
