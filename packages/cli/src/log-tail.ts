import { type FileHandle, open } from 'node:fs/promises'
import { StringDecoder } from 'node:string_decoder'
import { setTimeout as sleep } from 'node:timers/promises'

const MAX_TAIL_BYTES = 1024 * 1024
const CHUNK_BYTES = 64 * 1024
const POLL_MS = 300

/** The last lines of a file, and the offset at which it ended. `from` leaves out what came before. */
export async function tailLines(
  file: string,
  count: number,
  from = 0,
): Promise<{ lines: string[]; end: number }> {
  const handle = await open(file)
  try {
    const { size } = await handle.stat()
    const start = Math.max(from, size - MAX_TAIL_BYTES, 0)
    const text = (await readRange(handle, start, Math.max(0, size - start))).toString()
    const lines = text.split('\n')
    if (lines.at(-1) === '') lines.pop()
    return { lines: count === 0 ? [] : lines.slice(-count), end: size }
  } finally {
    await handle.close()
  }
}

/** Lines added to a file after `offset`, as they come, until the signal fires. Survives truncation. */
export async function* followLines(
  file: string,
  offset: number,
  signal: AbortSignal,
): AsyncGenerator<string> {
  let decoder = new StringDecoder('utf8')
  let rest = ''
  for (let position = offset; ; ) {
    const { bytes, size } = await readFrom(file, position)
    if (size < position) {
      position = 0
      decoder = new StringDecoder('utf8')
      continue
    }
    position += bytes.length
    const lines = (rest + decoder.write(bytes)).split('\n')
    rest = (lines.pop() ?? '').slice(-MAX_TAIL_BYTES)
    yield* lines
    if (bytes.length < CHUNK_BYTES) await sleep(POLL_MS, undefined, { signal })
  }
}

async function readFrom(file: string, position: number): Promise<{ bytes: Buffer; size: number }> {
  const handle = await open(file)
  try {
    const { size } = await handle.stat()
    return { bytes: await readRange(handle, position, CHUNK_BYTES), size }
  } finally {
    await handle.close()
  }
}

async function readRange(handle: FileHandle, start: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length)
  const { bytesRead } = await handle.read(buffer, 0, length, start)
  return buffer.subarray(0, bytesRead)
}
