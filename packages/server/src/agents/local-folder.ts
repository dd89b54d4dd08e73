import { constants } from 'node:fs'
import { isAbsolute } from 'node:path'
import { AshError } from '@ash-ai/shared'
import { aboutPath } from '../files/file-errors.ts'
import { Folder } from '../files/workspace-folder.ts'
import type { FolderEntry } from './agent-folder.ts'

/** Deeper than any sane agent; every folder on the way stays open. */
const MAX_DEPTH = 100

/** The files of a folder on this machine. Links are refused, not followed; `.git` and `.env*` stay behind. */
export async function* readLocalFolder(path: string): AsyncGenerator<FolderEntry> {
  if (!isAbsolute(path) || path.includes('\0')) {
    throw new AshError('agent_invalid', 'path: must be an absolute path on the server')
  }
  await using folder = await openRoot(path)
  yield* readFolder(folder, '', 1)
}

async function openRoot(path: string): Promise<Folder> {
  try {
    return await Folder.open(path)
  } catch (error) {
    throw new AshError('agent_invalid', `path: "${path}" is not a folder this server can read`, {
      cause: error,
    })
  }
}

async function* readFolder(folder: Folder, prefix: string, depth: number): AsyncGenerator<FolderEntry> {
  for await (const { name } of folder.items()) {
    if (isLeftBehind(name.toString())) continue
    const path = prefix + name.toString()
    const stats = await aboutPath(path, () => folder.stat(name))
    if (stats.isDirectory()) {
      if (depth === MAX_DEPTH) throw new AshError('agent_invalid', `"${path}" is too deep`)
      await using child = await aboutPath(path, () => folder.openFolder(name))
      yield* readFolder(child, `${path}/`, depth + 1)
    } else if (stats.isFile()) {
      yield { path, isExecutable: (stats.mode & 0o100) !== 0, content: readFile(folder, name, path) }
    } else {
      throw new AshError(
        'agent_invalid',
        `"${path}" is a link or a special file; only files and folders can be deployed`,
      )
    }
  }
}

const isLeftBehind = (name: string) => name === '.git' || name.startsWith('.env')

async function* readFile(folder: Folder, name: Buffer, path: string): AsyncGenerator<Uint8Array> {
  await using file = await aboutPath(path, () => folder.openFile(name, constants.O_RDONLY))
  yield* file.createReadStream({ autoClose: false })
}
