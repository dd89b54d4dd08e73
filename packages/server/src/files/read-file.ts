import { constants } from 'node:fs'
import { Readable } from 'node:stream'
import { AshError } from '@ash-ai/shared'
import type { FileSource } from './checkpoint-files.ts'
import { aboutPath } from './file-errors.ts'
import { type ByteRange, etagOf, storedEtagOf } from './http-conditions.ts'
import { openParent, splitPath, type Workspace } from './workspace-folder.ts'

/** For the caller to dispose of, or to read to its end. */
export interface OpenFile extends AsyncDisposable {
  size: number
  modifiedAt: Date
  etag: string
  /** Of a file that is not empty: all of it, or a part. */
  stream: (range?: ByteRange) => Readable
}

/** Opens a regular file for reading. */
export async function openFile(source: FileSource, path: string): Promise<OpenFile> {
  if (!('checkpoint' in source)) return openLive(source, path)
  splitPath(path)
  const { size, modifiedAt, stream } = await source.checkpoint.open(path)
  return {
    size,
    modifiedAt,
    etag: storedEtagOf(size, modifiedAt),
    stream: (range) => (range ? Readable.from(partOf(stream(), range), { objectMode: false }) : stream()),
    [Symbol.asyncDispose]: async () => {},
  }
}

async function openLive(workspace: Workspace, path: string): Promise<OpenFile> {
  return aboutPath(path, async () => {
    const { folder, name } = await openParent(workspace, path)
    await using parent = folder
    const handle = await parent.openFile(name, constants.O_RDONLY)
    try {
      const stats = await handle.stat({ bigint: true })
      if (!stats.isFile()) throw new AshError('not_a_file', `"${path}" is not a regular file`)
      const size = Number(stats.size)
      // Not further than it was: the sandbox may be writing to it.
      const stream = (range = { start: 0, end: size - 1 }) => handle.createReadStream(range)
      const close = () => handle.close()
      return { size, modifiedAt: stats.mtime, etag: etagOf(stats), stream, [Symbol.asyncDispose]: close }
    } catch (error) {
      await handle.close()
      throw error
    }
  })
}

/** Everything before the part has to be read as well: what is stored is verified as it is read. */
async function* partOf(stream: Readable, { start, end }: ByteRange): AsyncGenerator<Uint8Array> {
  let position = 0
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    const part = chunk.subarray(Math.max(0, start - position), end + 1 - position)
    position += chunk.length
    if (part.length > 0) yield part
    if (position > end) return
  }
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
