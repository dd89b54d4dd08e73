import { createHash } from 'node:crypto'
import { closeSync, fstatSync, mkdirSync, openSync, readSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { type HeldFolder, holdFile } from '../checkpoints/held-folder.ts'
import { mediaTypeOf } from './media-types.ts'
import { type FileScan, type SeenFile, walkFiles } from './walk-files.ts'

const CHUNK_BYTES = 256 * 1024

/** A file that a run made or changed. */
interface CollectedArtifact {
  /** Relative to the workspace. */
  path: string
  size: number
  mimeType: string
  /** Name of the copy in the folder of copies, and its checksum. Absent where it was too large to be copied. */
  stored?: string
  sha256?: string
}

export interface CollectTask {
  /** The workspace. */
  dir: string
  before: FileScan
  /** Folder of the copies, made when there is something to copy. */
  to: string
  maxFiles: number
  /** Of all copies together. */
  maxBytes: number
}

export interface Collected {
  /** In the order of their paths. */
  artifacts: CollectedArtifact[]
  /** False where there may be more than are listed. */
  isComplete: boolean
}

interface Copying extends Collected {
  task: CollectTask
  leftBytes: number
}

/**
 * Copies what is new or differs from before. Each is opened where it was found, without following a link, and is what
 * the descriptor says it is: whatever is swapped meanwhile, nothing but files of this workspace is read.
 */
export function copyChanges(task: CollectTask, maxEntries?: number): Collected {
  const copying: Copying = { task, artifacts: [], isComplete: true, leftBytes: task.maxBytes }
  const { isComplete } = walkFiles(
    task.dir,
    (folder, name, path, seen) => {
      if (isChanged(task.before.files.get(path), seen)) take(copying, folder, name, path)
    },
    maxEntries,
  )
  const artifacts = copying.artifacts.sort((one, other) => (one.path < other.path ? -1 : 1))
  return { artifacts, isComplete: isComplete && copying.isComplete && task.before.isComplete }
}

export const isChanged = (before: SeenFile | undefined, now: SeenFile) =>
  before?.ino !== now.ino || before.size !== now.size || before.ctimeNs !== now.ctimeNs

function take(copying: Copying, folder: HeldFolder, name: string, path: string): void {
  if (copying.artifacts.length >= copying.task.maxFiles) {
    copying.isComplete = false
    return
  }
  const held = holdFile(folder, name)
  if (held === undefined) return
  try {
    const { size } = fstatSync(held.fd)
    const artifact: CollectedArtifact = { path, size, mimeType: mediaTypeOf(path) }
    if (size <= copying.leftBytes) Object.assign(artifact, copy(copying, held.fd, size))
    copying.artifacts.push(artifact)
  } finally {
    held.close()
  }
}

/** As many bytes as the file had when it was opened, or fewer where it shrinks: one that grows has no end. */
function copy(copying: Copying, from: number, maxBytes: number): Partial<CollectedArtifact> {
  const { to } = copying.task
  const stored = String(copying.artifacts.length)
  mkdirSync(to, { recursive: true, mode: 0o700 })
  const file = join(to, stored)
  rmSync(file, { force: true })
  const out = openSync(file, 'wx', 0o600)
  try {
    const { size, sha256 } = pump(from, out, maxBytes)
    copying.leftBytes -= size
    return { size, sha256, stored }
  } finally {
    closeSync(out)
  }
}

function pump(from: number, to: number, maxBytes: number): { size: number; sha256: string } {
  const hash = createHash('sha256')
  const buffer = Buffer.allocUnsafe(Math.max(1, Math.min(CHUNK_BYTES, maxBytes)))
  let size = 0
  while (size < maxBytes) {
    const length = readSync(from, buffer, 0, Math.min(buffer.length, maxBytes - size), size)
    if (length === 0) break
    const chunk = buffer.subarray(0, length)
    hash.update(chunk)
    for (let written = 0; written < length; ) written += writeSync(to, chunk, written)
    size += length
  }
  return { size, sha256: hash.digest('hex') }
}
