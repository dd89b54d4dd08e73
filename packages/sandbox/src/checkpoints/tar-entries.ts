import { createReadStream } from 'node:fs'
import { open } from 'node:fs/promises'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import { extract, type Header } from 'tar-stream'
import { CheckpointFault, displayPath } from './checkpoint-fault.ts'
import { isEntryPath, isLinkTarget } from './entry-path.ts'
import { BLOCK_BYTES, type TarHeader } from './tar-header.ts'

export interface TarEntry extends TarHeader {
  /** To be read before the next entry is asked for. */
  content: AsyncIterable<Uint8Array>
}

/** What a time in a manifest can be. */
const MAX_TIME_S = 2 ** 33 - 1
const MIN_TIME_S = -(2 ** 31)

/**
 * The entries of a tar or gzipped tar, one after the other, in bounded memory. Paths lead only downwards. What is
 * broken, or cannot be in a workspace, is archive_invalid.
 */
export async function* readTarEntries(file: string, maxTarBytes: number): AsyncGenerator<TarEntry> {
  // Each byte of a name becomes a character: names need not be UTF-8.
  const entries = extract({ filenameEncoding: 'latin1' } as Parameters<typeof extract>[0])
  const feeding = pipeline(checkedTar(unzipped(file), maxTarBytes), entries).catch(() => {})
  try {
    for await (const entry of entries) {
      const header = toHeader(entry.header)
      if (header) yield { ...header, content: contentOf(entry) }
      entry.resume()
    }
  } catch (error) {
    throw toArchiveFault(error)
  } finally {
    entries.destroy()
    await feeding
  }
}

/** An archive may also break in the middle of a file. */
async function* contentOf(entry: AsyncIterable<unknown>): AsyncGenerator<Uint8Array> {
  try {
    yield* entry as AsyncIterable<Uint8Array>
  } catch (error) {
    throw toArchiveFault(error)
  }
}

async function* unzipped(file: string): AsyncGenerator<Uint8Array> {
  const input = createReadStream(file)
  if (!(await isGzip(file))) return yield* input
  const gunzip = createGunzip()
  const feeding = pipeline(input, gunzip).catch(() => {})
  try {
    yield* gunzip
  } finally {
    gunzip.destroy()
    await feeding
  }
}

/** Told by the first bytes: clients name the type of an archive wrongly more often than not. */
async function isGzip(file: string): Promise<boolean> {
  await using handle = await open(file)
  const { buffer } = await handle.read(Buffer.alloc(2), 0, 2, 0)
  return buffer[0] === 0x1f && buffer[1] === 0x8b
}

async function* checkedTar(tar: AsyncIterable<Uint8Array>, maxBytes: number): AsyncGenerator<Uint8Array> {
  let bytes = 0
  let zerosAtEnd = 0
  for await (const chunk of tar) {
    bytes += chunk.byteLength
    if (bytes > maxBytes) throw new CheckpointFault('payload_too_large', 'The archive unpacks to too much')
    zerosAtEnd = countZerosAtEnd(chunk, zerosAtEnd)
    yield chunk
  }
  // Every writer ends a tar with empty blocks: without them the end was cut off.
  if (zerosAtEnd < BLOCK_BYTES) throw new CheckpointFault('archive_invalid', 'The archive is cut off')
}

function countZerosAtEnd(chunk: Uint8Array, before: number): number {
  let zeros = 0
  while (zeros < chunk.byteLength && zeros < BLOCK_BYTES && chunk[chunk.byteLength - 1 - zeros] === 0) zeros++
  return zeros === chunk.byteLength ? before + zeros : zeros
}

/** Undefined for the workspace itself. */
function toHeader(header: Header): TarHeader | undefined {
  const pax = (header.pax ?? {}) as Record<string, string | undefined>
  const name = pax.path === undefined ? header.name : fromUtf8(pax.path)
  const path = withoutDots(name).replace(/\/+$/, '')
  const type = typeOf(header, name)
  if (type === 'directory' && (path === '' || path === '.')) return undefined
  if (!isEntryPath(path)) throw refuse(name, 'is not a relative path without ".." of usual length')
  if (Object.keys(pax).some((key) => key.startsWith('GNU.sparse'))) throw refuse(name, 'is a sparse file')
  const target = pax.linkpath === undefined ? (header.linkname ?? '') : fromUtf8(pax.linkpath)
  return {
    path,
    type,
    mode: header.mode & 0o1777,
    mtimeUs: timeOf(pax.mtime, header.mtime),
    size: checkSize(name, type, header.size),
    target: checkTarget(name, type, target),
  }
}

const withoutDots = (path: string) => path.replace(/^(\.\/+)+/, '')

function typeOf({ type }: Header, name: string): TarHeader['type'] {
  if (type === 'file' || type === 'contiguous-file') return 'file'
  if (type === 'directory' || type === 'symlink') return type
  if (type === 'link') return 'hardlink'
  throw refuse(name, `is a ${type ?? 'special entry'}; only files, folders and links are allowed`)
}

function checkSize(name: string, type: TarHeader['type'], size: number): number {
  if (!Number.isSafeInteger(size) || size < 0) throw refuse(name, 'has an impossible size')
  if (type !== 'file' && size > 0) throw refuse(name, `is a ${type} with content`)
  return size
}

/** A link may lead anywhere, since nobody follows it here; a hard link is another name of an earlier entry. */
function checkTarget(name: string, type: TarHeader['type'], target: string): string {
  if (type === 'file' || type === 'directory') return ''
  if (type === 'symlink' && isLinkTarget(target)) return target
  if (type === 'hardlink' && isEntryPath(withoutDots(target))) return withoutDots(target)
  throw refuse(name, 'is a link without a usable target')
}

/** Extended headers are UTF-8; the bytes of anything else in them are lost. */
function fromUtf8(text: string): string {
  if (text.includes('\uFFFD')) throw new CheckpointFault('archive_invalid', 'A long name in it is not UTF-8')
  return Buffer.from(text).toString('latin1')
}

function timeOf(paxTime: string | undefined, headerTime: Date): number {
  const seconds = paxTime === undefined ? headerTime.getTime() / 1000 : Number(paxTime)
  if (!Number.isFinite(seconds)) return 0
  return Math.round(Math.min(Math.max(seconds, MIN_TIME_S), MAX_TIME_S) * 1_000_000)
}

const MAX_SHOWN_CHARS = 200

const refuse = (name: string, problem: string) =>
  new CheckpointFault('archive_invalid', `"${displayPath(name).slice(0, MAX_SHOWN_CHARS)}" ${problem}`)

function toArchiveFault(error: unknown): CheckpointFault {
  if (error instanceof CheckpointFault) return error
  const reason = error instanceof Error ? error.message : String(error)
  return new CheckpointFault('archive_invalid', `The archive cannot be read: ${reason}`, { cause: error })
}
