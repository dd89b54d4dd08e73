import { randomUUID } from 'node:crypto'
import { rename } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { AshError, type CheckpointDiff, type FileEntry, isRelativePath, MAX_PATH_CHARS } from '@ash-ai/shared'
import { faultPoint } from '../fault-point.ts'
import type { Owner } from '../provider.ts'
import { readGeneration, writeGeneration } from './blob-generation.ts'
import type { CheckpointResults, CheckpointTask, ThreadOptions } from './checkpoint-thread.ts'
import { readBlob } from './local-blobs.ts'
import { CHUNK_BYTES, dataChunks, type FileEntry as StoredFile } from './manifest-entry.ts'
import { TenantLocks } from './tenant-locks.ts'
import { ThreadPool } from './thread-pool.ts'

/** Absolute folders of this host. */
interface CheckpointRoots {
  workspace: string
  home: string
}

type Pids = readonly number[] | undefined

export interface SaveRequest {
  tenantId: string
  roots: CheckpointRoots
  /** Kept between saves: what was seen, so that unchanged files are not read again. */
  indexFile: string
  /**
   * Processes of the frozen sandbox; undefined where they cannot be listed or are not frozen, [] where none runs. Or what
   * freezes it and lists them, called when the scan can begin: until then it may go on.
   */
  pids?: Pids | (() => Promise<Pids>)
}

export interface SavedCheckpoint {
  /** Hash of the manifest, by which the checkpoint is named. */
  manifest: string
  files: number
  bytes: number
  /** What had to be stored because nobody had it. */
  newBytes: number
}

export interface RestoreRequest {
  tenantId: string
  manifest: string
  roots: CheckpointRoots
  owner: Owner | undefined
  indexFile: string
}

export interface StoredContent {
  size: number
  modifiedAt: Date
  /** Every part is verified before it is passed on. */
  stream: () => Readable
}

const DEFAULT_THREADS = 2

/** The checkpoints of this host: manifests and blobs below one folder, each named by its hash. */
export class CheckpointStore {
  readonly dir: string
  readonly sync: boolean
  /** Trees are walked in these. */
  readonly #pool: ThreadPool
  /** Manifests are read in this: nobody waits for somebody else's tree to look at a list. */
  readonly #reader: ThreadPool
  readonly #locks = new TenantLocks()
  readonly #started = randomUUID()

  constructor(options: { dir: string; sync: boolean; threads?: number; faultPoint?: string }) {
    const { dir, sync, threads = DEFAULT_THREADS, faultPoint: armed } = options
    this.dir = dir
    this.sync = sync
    const file = import.meta.url.endsWith('.ts') ? './checkpoint-thread.ts' : './checkpoint-thread.js'
    const workerData: ThreadOptions = { dir, sync, faultPoint: armed }
    const entry = new URL(file, import.meta.url)
    this.#pool = new ThreadPool(entry, { threads, workerData })
    this.#reader = new ThreadPool(entry, { threads: 1, workerData })
  }

  /**
   * `commit` makes it known; no blob it refers to can be swept before that, and if it fails nothing has happened. Its
   * result is returned.
   */
  save<Result>(request: SaveRequest, commit: (saved: SavedCheckpoint) => Promise<Result>): Promise<Result> {
    const { tenantId, roots, indexFile, pids } = request
    return this.shared(tenantId, async () => {
      const generation = await this.#generation(tenantId)
      const task = { kind: 'save', tenantId, roots, indexFile, generation } as const
      const { newIndexFile, ...saved } = await this.#pool.run<CheckpointResults['save']>(async () => ({
        ...task,
        pids: typeof pids === 'function' ? await pids() : pids,
      }))
      const result = await commit(saved)
      faultPoint('checkpoint-committed')
      // Without it the next save reads more, and that is all.
      if (newIndexFile !== undefined) await rename(newIndexFile, indexFile).catch(() => {})
      return result
    })
  }

  /** The roots must not exist; they appear whole or not at all, home first, workspace last. */
  restore(request: RestoreRequest): Promise<void> {
    return this.shared(request.tenantId, async () => {
      const generation = await this.#generation(request.tenantId)
      const { tenantId, manifest, roots, owner, indexFile } = request
      await this.#pool.run({ kind: 'restore', tenantId, manifest, roots, owner, indexFile, generation })
    })
  }

  /** Files of the workspace, as a live one is listed. */
  async list(
    tenantId: string,
    manifest: string,
    { path, limit }: { path?: string; limit: number },
  ): Promise<{ files: FileEntry[]; truncated: boolean }> {
    const folder = path === undefined ? undefined : toStoredPath(path)
    return this.#run({ kind: 'list', tenantId, manifest, path: folder, limit })
  }

  /** A file of the workspace. Throws file_not_found, not_a_file or path_invalid. */
  async openFile(tenantId: string, manifest: string, path: string): Promise<StoredContent> {
    const file = await this.#run({ kind: 'find', tenantId, manifest, path: toStoredPath(path) })
    return {
      size: file.size,
      modifiedAt: new Date(Math.round(file.mtimeUs / 1000)),
      stream: () => Readable.from(contentOf(this.dir, tenantId, file, path), { objectMode: false }),
    }
  }

  /** What changed in the workspace. */
  diff(
    tenantId: string,
    from: string,
    to: string,
    limit: number,
  ): Promise<Pick<CheckpointDiff, 'added' | 'changed' | 'removed' | 'truncated'>> {
    return this.#run({ kind: 'diff', tenantId, from, to, limit })
  }

  /**
   * Hashes of blobs that this host does not have; only the manifest's own where that is missing. With `verifies`
   * each is read, and a damaged one counts as missing.
   */
  missing(tenantId: string, manifest: string, { verifies = false } = {}): Promise<string[]> {
    return this.#run({ kind: 'missing', tenantId, manifest, verifies })
  }

  /** Every blob of a checkpoint, the manifest last; those that `except` refers to are left out. */
  hashes(tenantId: string, manifest: string, except?: string): Promise<string[]> {
    return this.#run({ kind: 'hashes', tenantId, manifest, except })
  }

  /** Runs `work`, which adds blobs, while nothing is deleted. Not to be called within another of these two. */
  shared<Result>(tenantId: string, work: () => Promise<Result>): Promise<Result> {
    return this.#locks.hold(tenantId, false, work)
  }

  /** Runs `work`, which may delete blobs of the tenant, while nobody saves, restores or adds any. */
  exclusive<Result>(tenantId: string, work: () => Promise<Result>): Promise<Result> {
    return this.#locks.hold(tenantId, true, async () => {
      await writeGeneration(this.dir, tenantId, this)
      return work()
    })
  }

  /** What is under way fails. */
  async close(): Promise<void> {
    await Promise.all([this.#pool.close(), this.#reader.close()])
  }

  #run<Task extends CheckpointTask>(task: Task): Promise<CheckpointResults[Task['kind']]> {
    return this.#reader.run(task)
  }

  /** Of this process, too: what a power cut or a restored copy has taken is looked for once after each start. */
  async #generation(tenantId: string): Promise<string> {
    return `${await readGeneration(this.dir, tenantId)} ${this.#started}`
  }
}

function toStoredPath(path: string): string {
  if (path.length > MAX_PATH_CHARS || !isRelativePath(path)) {
    throw new AshError(
      'path_invalid',
      'A path must be relative, without "..", "." or empty parts, backslashes or NUL',
    )
  }
  return Buffer.from(path).toString('latin1')
}

async function* contentOf(dir: string, tenantId: string, file: StoredFile, path: string) {
  let end = 0
  for (const { hash, position, length } of dataChunks(file)) {
    yield* zeros(position - end)
    const bytes = await readBlob(dir, tenantId, hash)
    if (bytes?.length !== length) {
      throw new AshError(
        'checkpoint_damaged',
        `The stored content of "${path}" is missing or does not match its hash`,
      )
    }
    yield bytes
    end = position + length
  }
  yield* zeros(file.size - end)
}

function* zeros(length: number): Generator<Buffer> {
  const part = Buffer.alloc(Math.min(length, CHUNK_BYTES))
  for (let left = length; left > 0; left -= part.length) yield part.subarray(0, Math.min(left, part.length))
}
