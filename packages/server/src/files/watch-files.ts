import { setTimeout as sleep } from 'node:timers/promises'
import { type FileChange, isAshError } from '@ash-ai/shared'
import type { FileSource } from './checkpoint-files.ts'
import { codeOf } from './file-errors.ts'
import { walkFiles } from './walk-files.ts'

export const MAX_WATCHED_ENTRIES = 20_000
/** Paths may be long, and an agent decides how long. */
const MAX_WATCHED_CHARS = 2 * 1024 * 1024
const SCAN_MS = 500
/** Of the time, at most a fifth goes into looking. */
const REST_FACTOR = 4

interface Seen {
  path: string
  size: number
  version: string
}

/** What was there at one moment, by path. */
export interface Snapshot {
  items: Map<string, Seen>
  /** There is more than is looked at. */
  isTruncated: boolean
}

const IS_TEMPORARY = /^\.ash-(?:write|copy|delete)-[0-9a-f-]{36}(?:\/|$)/

/** What is below `path` now. A checkpoint does not change: of that only the first look counts. */
export async function scanFiles(source: FileSource, path: string | undefined): Promise<Snapshot> {
  const items = new Map<string, Seen>()
  let chars = 0
  const isComplete = await walkFiles(source, { path, recursive: true }, ({ rawPath, entry, stats }) => {
    chars += rawPath.length
    if (items.size >= MAX_WATCHED_ENTRIES || chars > MAX_WATCHED_CHARS) return false
    // What a client is writing at the moment is told of when it is in its place.
    if (IS_TEMPORARY.test(rawPath)) return true
    const times = stats ? `${stats.mtimeMs}.${stats.ctimeMs}.${stats.ino}` : entry.modifiedAt
    // The times of a folder change with what it holds, which is told of by itself.
    const version = entry.type === 'directory' ? 'directory' : `${entry.type}.${entry.size}.${times}`
    items.set(rawPath, { path: entry.path, size: entry.size, version })
    return true
  })
  return { items, isTruncated: !isComplete }
}

/** From one look to the next. */
export function compareScans(before: Snapshot, after: Snapshot): FileChange[] {
  const changes: FileChange[] = []
  for (const [rawPath, { path, size }] of before.items)
    if (!after.items.has(rawPath)) changes.push({ type: 'deleted', path, size })
  for (const [rawPath, { path, size, version }] of after.items) {
    const old = before.items.get(rawPath)
    if (old?.version !== version) changes.push({ type: old ? 'changed' : 'created', path, size })
  }
  return changes
}

/** Looks again and again until `signal` fires, and gives what has changed each time. */
export async function* watchScans(
  first: Snapshot,
  scan: () => Promise<Snapshot>,
  signal: AbortSignal,
): AsyncGenerator<{ changes: FileChange[]; isTruncated: boolean }> {
  let before = first
  for (let tookMs = 0; ; ) {
    await sleep(Math.max(SCAN_MS - tookMs, REST_FACTOR * tookMs), undefined, { signal, ref: false }).catch(
      () => {},
    )
    if (signal.aborted) return
    const startedMs = performance.now()
    const after = await look(scan, before)
    tookMs = performance.now() - startedMs
    const changes = compareScans(before, after)
    if (changes.length > 0 || after.isTruncated !== before.isTruncated)
      yield { changes, isTruncated: after.isTruncated }
    before = after
  }
}

/** The folder that is watched may be deleted and made again; the whole workspace is away only while it is replaced. */
async function look(scan: () => Promise<Snapshot>, before: Snapshot): Promise<Snapshot> {
  try {
    return await scan()
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return before
    if (!isAshError(error, 'file_not_found') && !isAshError(error, 'path_invalid')) throw error
    return { items: new Map(), isTruncated: false }
  }
}
