import { readFileSync, writeFileSync } from 'node:fs'
import { threadId } from 'node:worker_threads'
import type { Chunk, RootName } from './manifest-entry.ts'

/** A file that has not changed as long as its inode, size and ctime are these. */
export interface KnownFile {
  ino: number
  ctimeMs: number
  size: number
  chunks: Chunk[]
}

export interface ScanIndex {
  /** Of the tenant's blobs: while it is the same, every blob named here is there. */
  generation: string
  known: Record<RootName, Map<string, KnownFile>>
}

type Row = [path: string, ino: number, ctimeMs: number, size: number, chunks: Chunk[]]

const VERSION = 1

export const emptyIndex = (generation: string): ScanIndex => ({
  generation,
  known: { workspace: new Map(), home: new Map() },
})

/** Undefined where there is none that can be read: that only costs reading the files. */
export function loadIndex(path: string): ScanIndex | undefined {
  try {
    const { version, generation, workspace, home } = JSON.parse(readFileSync(path, 'utf8'))
    if (version !== VERSION || typeof generation !== 'string') return undefined
    return { generation, known: { workspace: toMap(workspace), home: toMap(home) } }
  } catch {
    return undefined
  }
}

/**
 * Writes an index beside its place, for the caller to move there; undefined where that fails: without one the next
 * checkpoint costs more, and that is all.
 */
export function stageIndex(path: string, { generation, known }: ScanIndex): string | undefined {
  const staged = `${path}.${threadId}.new`
  const { workspace, home } = known
  const index = { version: VERSION, generation, workspace: toRows(workspace), home: toRows(home) }
  try {
    writeFileSync(staged, JSON.stringify(index), { mode: 0o600 })
    return staged
  } catch {
    return undefined
  }
}

const toMap = (rows: Row[]) =>
  new Map(rows.map(([path, ino, ctimeMs, size, chunks]) => [path, { ino, ctimeMs, size, chunks }]))

const toRows = (known: Map<string, KnownFile>): Row[] =>
  Array.from(known, ([path, { ino, ctimeMs, size, chunks }]) => [path, ino, ctimeMs, size, chunks])
