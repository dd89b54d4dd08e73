import { constants } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { AshError } from '@ash-ai/shared'
import { aboutPath } from './file-errors.ts'
import { openParent, type Workspace } from './workspace-folder.ts'

export interface OpenFile {
  /** For the caller to close, or to read to its end as a stream. */
  handle: FileHandle
  size: number
  modifiedAt: Date
}

/** Opens a regular file for reading. */
export async function openFile(workspace: Workspace, path: string): Promise<OpenFile> {
  return aboutPath(path, async () => {
    const { folder, name } = await openParent(workspace, path)
    await using parent = folder
    const handle = await parent.openFile(name, constants.O_RDONLY)
    try {
      const stats = await handle.stat()
      if (!stats.isFile()) throw new AshError('not_a_file', `"${path}" is not a regular file`)
      return { handle, size: stats.size, modifiedAt: stats.mtime }
    } catch (error) {
      await handle.close()
      throw error
    }
  })
}

/** The text of a file of at most `maxBytes`. */
export async function readText(workspace: Workspace, path: string, maxBytes: number): Promise<string> {
  const { handle, size } = await openFile(workspace, path)
  await using file = handle
  if (size > maxBytes) {
    throw new AshError(
      'payload_too_large',
      `"${path}" is longer than ${maxBytes} bytes; read it without format=json`,
    )
  }
  const { buffer, bytesRead } = await file.read(Buffer.alloc(size), 0, size, 0)
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(buffer.subarray(0, bytesRead))
  } catch {
    throw new AshError('not_a_file', `"${path}" is not UTF-8 text; read it without format=json`)
  }
}
