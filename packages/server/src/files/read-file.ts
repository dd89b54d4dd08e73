import { constants } from 'node:fs'
import type { Readable } from 'node:stream'
import { AshError } from '@ash-ai/shared'
import type { FileSource } from './checkpoint-files.ts'
import { aboutPath } from './file-errors.ts'
import { openParent, splitPath, type Workspace } from './workspace-folder.ts'

/** For the caller to dispose of, or to read to its end. */
export interface OpenFile extends AsyncDisposable {
  size: number
  modifiedAt: Date
  /** Of a file that is not empty. */
  stream: () => Readable
}

/** Opens a regular file for reading. */
export async function openFile(source: FileSource, path: string): Promise<OpenFile> {
  if (!('checkpoint' in source)) return openLive(source, path)
  splitPath(path)
  return { ...(await source.checkpoint.open(path)), [Symbol.asyncDispose]: async () => {} }
}

async function openLive(workspace: Workspace, path: string): Promise<OpenFile> {
  return aboutPath(path, async () => {
    const { folder, name } = await openParent(workspace, path)
    await using parent = folder
    const handle = await parent.openFile(name, constants.O_RDONLY)
    try {
      const stats = await handle.stat()
      if (!stats.isFile()) throw new AshError('not_a_file', `"${path}" is not a regular file`)
      const { size, mtime } = stats
      // Not further than it was: the sandbox may be writing to it.
      const stream = () => handle.createReadStream({ start: 0, end: size - 1 })
      return { size, modifiedAt: mtime, stream, [Symbol.asyncDispose]: () => handle.close() }
    } catch (error) {
      await handle.close()
      throw error
    }
  })
}

/** The text of a file of at most `maxBytes`. */
export async function readText(source: FileSource, path: string, maxBytes: number): Promise<string> {
  await using file = await openFile(source, path)
  if (file.size > maxBytes) {
    throw new AshError(
      'payload_too_large',
      `"${path}" is longer than ${maxBytes} bytes; read it without format=json`,
    )
  }
  const bytes: Buffer[] = file.size === 0 ? [] : await file.stream().toArray()
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.concat(bytes))
  } catch {
    throw new AshError('not_a_file', `"${path}" is not UTF-8 text; read it without format=json`)
  }
}
