import { open, rename, rm, stat } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'

export type Parts = AsyncIterable<Uint8Array> | Iterable<Uint8Array>

/** Part of a file is none: it appears when it is whole, and until then an earlier one stays. */
export async function saveFile(parts: Parts, file: string): Promise<number> {
  const present = await stat(file).catch(() => undefined)
  // A device or a pipe is written to as it is.
  if (present && !present.isFile()) return write(parts, file)
  const part = `${file}.part`
  try {
    const size = await write(parts, part)
    await rename(part, file)
    return size
  } catch (error) {
    await rm(part, { force: true })
    throw error
  }
}

async function write(parts: Parts, file: string): Promise<number> {
  const target = (await open(file, 'w')).createWriteStream()
  await pipeline(Readable.from(parts), target)
  return target.bytesWritten
}
