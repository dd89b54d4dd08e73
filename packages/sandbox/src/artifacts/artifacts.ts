import { ThreadPool } from '../checkpoints/thread-pool.ts'
import type { ArtifactTask } from './artifact-thread.ts'
import { type Collected, type CollectTask, copyChanges, isChanged } from './copy-changes.ts'
import { type FileScan, TooManyEntries, walkFiles } from './walk-files.ts'

const THREADS = 2
const MAX_FILES = 200
const MAX_BYTES = 256 * 1024 * 1024
/** So few are looked at in less time than another thread takes to answer. */
const FEW_ENTRIES = 64
/** So much is copied and hashed in a millisecond. */
const FEW_BYTES = 512 * 1024

const file = import.meta.url.endsWith('.ts') ? './artifact-thread.ts' : './artifact-thread.js'
const threads = new ThreadPool(new URL(file, import.meta.url), { threads: THREADS, workerData: undefined })

/** The files of a workspace as they are now. */
export async function scanFiles(dir: string): Promise<FileScan> {
  return atOnce(() => walkFiles(dir, undefined, FEW_ENTRIES)) ?? inThread({ kind: 'scan', dir })
}

/** Copies what has changed since `before` to `to`, as far as that has room. */
export async function collectArtifacts(
  options: Omit<CollectTask, 'maxFiles' | 'maxBytes'> & Partial<CollectTask>,
): Promise<Collected> {
  const task = { maxFiles: MAX_FILES, maxBytes: MAX_BYTES, ...options }
  return collectFew(task) ?? inThread({ kind: 'collect', ...task })
}

/** Undefined where there is more to do than a moment's work. */
function collectFew(task: CollectTask): Collected | undefined {
  return atOnce(() => {
    const { files, isComplete } = walkFiles(task.dir, undefined, FEW_ENTRIES)
    if ([...files].every(([path, seen]) => !isChanged(task.before.files.get(path), seen)))
      return { artifacts: [], isComplete: isComplete && task.before.isComplete }
    const bytes = [...files.values()].reduce((sum, { size }) => sum + size, 0)
    if (bytes > FEW_BYTES) return undefined
    const collected = copyChanges({ ...task, maxBytes: Math.min(FEW_BYTES, task.maxBytes) }, FEW_ENTRIES)
    // One has grown meanwhile: again, with all the room there is.
    return collected.artifacts.some(({ stored }) => stored === undefined) ? undefined : collected
  })
}

function atOnce<Result>(work: () => Result): Result | undefined {
  try {
    return work()
  } catch (error) {
    if (error instanceof TooManyEntries) return undefined
    throw error
  }
}

const inThread = <Result>(task: ArtifactTask): Promise<Result> => threads.run<Result>(task)
