import type { FileEntry } from '@ash-ai/shared'
import type { FileSource } from './checkpoint-files.ts'
import { walkFiles } from './walk-files.ts'

export interface FileListing {
  files: FileEntry[]
  /** There is more than is listed here. */
  truncated: boolean
}

export interface ListOptions {
  path?: string | undefined
  limit: number
  /** What is in folders below, too; default yes. */
  recursive?: boolean
  cursor?: string | undefined
}

/** Paths may be long, and an agent decides how long: a page ends before it holds more of them. */
const MAX_PAGE_CHARS = 4 * 1024 * 1024

/** A page of what is below `path`, names in order and each folder before its content. Links are not followed. */
export async function listFiles(
  source: FileSource,
  { path, limit, recursive = true, cursor }: ListOptions,
): Promise<FileListing & { nextCursor?: string }> {
  const files: FileEntry[] = []
  let chars = 0
  let last: string | undefined
  let isFull = false
  const isComplete = await walkFiles(source, { path, recursive, after: fromCursor(cursor) }, (item) => {
    isFull = files.length >= limit || (files.length > 0 && chars + item.rawPath.length > MAX_PAGE_CHARS)
    if (isFull) return false
    chars += item.rawPath.length
    last = item.rawPath
    files.push(item.entry)
    return true
  })
  const nextCursor = isFull && last !== undefined ? { nextCursor: toCursor(last) } : {}
  return { files, truncated: !isComplete, ...nextCursor }
}

const toCursor = (rawPath: string) => Buffer.from(rawPath, 'latin1').toString('base64url')
const fromCursor = (cursor: string | undefined) =>
  cursor === undefined ? undefined : Buffer.from(cursor, 'base64url').toString('latin1')
