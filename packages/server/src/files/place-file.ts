import { AshError } from '@ash-ai/shared'
import { aboutPath, codeOf, unlessMissing } from './file-errors.ts'
import { exclusively } from './file-locks.ts'
import { allowsWrite, etagOf, type WriteConditions } from './http-conditions.ts'
import { descend, type Folder, type Name, splitPath, type Workspace } from './workspace-folder.ts'

export interface PlaceOptions extends WriteConditions {
  /** Where something is, it gives way; a folder never does. */
  overwrite: boolean
}

/**
 * Moves `name` in `source` to `path`, making the folders it needs: in one step, so that nobody sees half of it.
 * Throws file_exists or precondition_failed. Says what the etag of a file is now.
 */
export async function placeFile(
  workspace: Workspace,
  source: Folder,
  name: Name,
  path: string,
  options: PlaceOptions,
): Promise<string> {
  const { parents, name: newName } = splitPath(path)
  return exclusively(`${workspace.root}/${path}`, () =>
    aboutPath(path, async () => {
      await using target = await ensureFolders(workspace, parents)
      const stats = await source.stat(name)
      const existing = await unlessMissing(target.statExactly(newName))
      assertConditions(options, existing?.isFile() ? etagOf(existing) : undefined, path)
      if (existing && !options.overwrite) throw new AshError('file_exists', `"${path}" exists already`)
      if (existing && (existing.isDirectory() || stats.isDirectory()))
        throw new AshError('file_exists', `"${path}" exists, and folders are not replaced. Delete it first.`)
      // What the agent makes there meanwhile is replaced only where that was asked for.
      if (options.overwrite || stats.isDirectory()) await source.move(name, target, newName)
      else await source.moveToNew(name, target, newName)
      return etagOf(await target.statExactly(newName))
    }),
  )
}

export function assertConditions(conditions: WriteConditions, etag: string | undefined, path: string): void {
  if (allowsWrite(conditions, etag)) return
  const state = etag === undefined ? 'is not there' : 'is there, or another one by now'
  throw new AshError('precondition_failed', `"${path}" ${state}`)
}

/** The folder that `parts` lead to. Those that are missing are made. */
export function ensureFolders(workspace: Workspace, parts: string[]): Promise<Folder> {
  return descend(workspace, parts, (parent, part) => openOrCreate(parent, part, workspace.owner))
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
