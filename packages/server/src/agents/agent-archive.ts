import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import { AshError, isRelativePath, MAX_AGENT_BYTES, MAX_AGENT_FILES, MAX_PATH_CHARS } from '@ash-ai/shared'
import { extract, type Header } from 'tar-stream'
import type { FolderEntry } from './agent-folder.ts'

const BLOCK_BYTES = 512
/** A file costs a header and padding, with a long name some more; the archive ends in empty blocks. */
const MAX_TAR_BYTES = MAX_AGENT_BYTES + MAX_AGENT_FILES * 8 * BLOCK_BYTES
/** Folders compress 3 to 20 times; what is far beyond is a bomb. Small archives of zeros are let through. */
const MAX_RATIO = 200
const RATIO_APPLIES_FROM_BYTES = 8 * 1024 * 1024

/**
 * The files of a tar or gzipped tar, one after the other, while it arrives. Plain files and folders only;
 * anything else, and anything broken, is archive_invalid.
 */
export async function* readArchive(source: AsyncIterable<Uint8Array>): AsyncGenerator<FolderEntry> {
  const entries = extract()
  const feeding = pipeline(boundedTar(source), entries).catch(() => {})
  try {
    for await (const entry of entries) {
      const file = toFile(entry)
      if (file) yield file
      else entry.resume()
    }
  } catch (error) {
    throw toArchiveError(error)
  } finally {
    entries.destroy()
    await feeding
  }
}

/** Undefined for a folder: those come into being with their files. */
function toFile(entry: AsyncIterable<unknown> & { header: Header }): FolderEntry | undefined {
  const { header } = entry
  const path = header.name.replace(/^(\.\/)+/, '').replace(/\/+$/, '')
  const isFolder = header.type === 'directory' || (header.name.endsWith('/') && header.size === 0)
  if (isFolder && (path === '' || path === '.')) return undefined
  checkPath(header.name, path)
  checkType(header)
  if (isFolder) return undefined
  return { path, isExecutable: (header.mode & 0o100) !== 0, content: contentOf(entry) }
}

/** An archive may also break in the middle of a file. */
async function* contentOf(entry: AsyncIterable<unknown>): AsyncGenerator<Uint8Array> {
  try {
    yield* entry as AsyncIterable<Uint8Array>
  } catch (error) {
    throw toArchiveError(error)
  }
}

function checkPath(name: string, path: string): void {
  // A name that is not UTF-8 has been decoded to replacement characters.
  if (path.length > MAX_PATH_CHARS || !isRelativePath(path) || path.includes('\uFFFD')) {
    throw refuse(name, 'is not a relative path without ".." in UTF-8')
  }
}

function checkType({ name, type, size, pax }: Header): void {
  if (type !== 'file' && type !== 'contiguous-file' && type !== 'directory') {
    throw refuse(name, `is a ${type ?? 'special entry'}; only files and folders are allowed`)
  }
  if (name.endsWith('/') && size) throw refuse(name, 'is a folder with content')
  if (Object.keys(pax ?? {}).some((key) => key.startsWith('GNU.sparse')))
    throw refuse(name, 'is a sparse file')
  if (size > MAX_AGENT_BYTES)
    throw new AshError('payload_too_large', `"${show(name)}" is larger than an agent may be`)
}

/** The tar inside, unzipped where it is zipped, cut off where it grows beyond all reason. */
async function* boundedTar(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const received = { bytes: 0 }
  let bytes = 0
  let zerosAtEnd = 0
  for await (const chunk of unzipped(counted(source, received))) {
    bytes += chunk.byteLength
    checkSize(bytes, received.bytes)
    zerosAtEnd = countZerosAtEnd(chunk, zerosAtEnd)
    yield chunk
  }
  // Every writer ends a tar with empty blocks: without them the end was cut off.
  if (zerosAtEnd < BLOCK_BYTES) throw new AshError('archive_invalid', 'The archive is cut off')
}

function checkSize(bytes: number, receivedBytes: number): void {
  if (bytes > MAX_TAR_BYTES) {
    throw new AshError('payload_too_large', `The archive unpacks to more than ${MAX_AGENT_BYTES} bytes`)
  }
  if (bytes > RATIO_APPLIES_FROM_BYTES && bytes > receivedBytes * MAX_RATIO) {
    throw new AshError('archive_invalid', `The archive is compressed more than ${MAX_RATIO} times`)
  }
}

async function* counted(source: AsyncIterable<Uint8Array>, received: { bytes: number }) {
  for await (const chunk of source) {
    received.bytes += chunk.byteLength
    yield chunk
  }
}

/** Told by the first bytes: clients name the type of an archive wrongly more often than not. */
async function* unzipped(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const chunks = source[Symbol.asyncIterator]()
  try {
    const head = await readHead(chunks)
    const isGzip = head[0] === 0x1f && head[1] === 0x8b
    yield* isGzip ? gunzipped(joined(head, chunks)) : joined(head, chunks)
  } finally {
    await chunks.return?.()
  }
}

async function readHead(chunks: AsyncIterator<Uint8Array>): Promise<Buffer> {
  let head = Buffer.alloc(0)
  while (head.length < 2) {
    const next = await chunks.next()
    if (next.done) break
    head = Buffer.concat([head, next.value])
  }
  return head
}

async function* joined(head: Uint8Array, rest: AsyncIterator<Uint8Array>): AsyncGenerator<Uint8Array> {
  if (head.byteLength > 0) yield head
  for (let next = await rest.next(); !next.done; next = await rest.next()) yield next.value
}

async function* gunzipped(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip()
  const feeding = pipeline(source, gunzip).catch(() => {})
  try {
    yield* gunzip
  } finally {
    gunzip.destroy()
    await feeding
  }
}

function countZerosAtEnd(chunk: Uint8Array, before: number): number {
  let zeros = 0
  while (zeros < chunk.byteLength && zeros < BLOCK_BYTES && chunk[chunk.byteLength - 1 - zeros] === 0) zeros++
  return zeros === chunk.byteLength ? before + zeros : zeros
}

const refuse = (name: string, problem: string) =>
  new AshError('archive_invalid', `"${show(name)}" ${problem}`)

const MAX_SHOWN_CHARS = 200
const show = (name: string) => (name.length > MAX_SHOWN_CHARS ? `${name.slice(0, MAX_SHOWN_CHARS)}…` : name)

function toArchiveError(error: unknown): AshError {
  if (error instanceof AshError) return error
  const reason = error instanceof Error ? error.message : String(error)
  return new AshError('archive_invalid', `The archive cannot be read: ${reason}`, { cause: error })
}
