import { faultPoint } from '../fault-point.ts'
import { BlobSink } from './blob-sink.ts'
import { encodeManifest } from './manifest.ts'
import { type RootName, totalsOf } from './manifest-entry.ts'
import { mappedInodes } from './mapped-files.ts'
import { scanRoots } from './scan.ts'
import { emptyIndex, loadIndex, stageIndex } from './scan-index.ts'

export interface SaveTask {
  tenantId: string
  roots: Record<RootName, string>
  indexFile: string
  generation: string
  pids: readonly number[] | undefined
}

export interface SavedFolders {
  manifest: string
  files: number
  bytes: number
  newBytes: number
  /** To be moved to its place once the checkpoint is known; undefined where it could not be written. */
  newIndexFile: string | undefined
}

/** Two changes within one tick of the kernel's clock leave the same ctime. */
const CLOCK_MARGIN_MS = 1000
/** Where mappings cannot be seen: write-back comes after 30 s at most, and then a page tells of its next change. */
const MAPPING_MARGIN_MS = 45_000

/** Runs inside a thread. Everything is stored when it returns, and nothing refers to it yet. */
export function saveFolders(store: { dir: string; sync: boolean }, task: SaveTask): SavedFolders {
  const startedMs = Date.now()
  const blobs = new BlobSink({ ...store, tenantId: task.tenantId })
  const mapped = task.pids && mappedInodes(task.pids)
  const next = emptyIndex(task.generation)
  const manifest = scanRoots(task.roots, {
    blobs,
    index: loadIndex(task.indexFile),
    next,
    settledBeforeMs: startedMs - (mapped ? CLOCK_MARGIN_MS : MAPPING_MARGIN_MS),
    mapped: mapped ?? new Set(),
  })
  faultPoint('checkpoint-scanned')
  const encoded = encodeManifest(manifest)
  blobs.put(encoded.bytes)
  blobs.settle()
  faultPoint('checkpoint-manifest')
  const newIndexFile = stageIndex(task.indexFile, next)
  return { manifest: encoded.hash, ...totalsOf(manifest), newBytes: blobs.newBytes, newIndexFile }
}
