import { statfs } from 'node:fs/promises'
import type { Db } from '../db/open-db.ts'
import { type ExecutionRow, sumKeptBytes } from './execution-queries.ts'

const MAX_BYTES_PER_RUN = 256 * 1024 * 1024
/** Of the disk: the last of it belongs to those who work, and to the database. */
const MIN_FREE_SHARE = 0.05
const DISK_CHECK_MS = 1_000
/** Until then what is known of a session is taken for true, though some of its files may be gone. */
const KNOWN_MS = 60_000
const MAX_KNOWN = 1_000

interface RoomDeps {
  db: Db
  dataDir: string
  maxArtifactBytes: number
}

/** Of the file system that a folder is on. */
type ReadDisk = (folder: string) => Promise<{ bavail: number; blocks: number }>

type Run = Pick<ExecutionRow, 'tenant_id' | 'session_id'>

/** How many bytes the runs of a session may keep. */
export class ArtifactRoom {
  readonly #kept = new Map<string, { bytes: number; atMs: number }>()
  readonly #queues = new Map<string, Promise<unknown>>()
  readonly #readDisk: ReadDisk
  #disk = { isFull: false, atMs: Number.NEGATIVE_INFINITY }

  constructor(readDisk: ReadDisk = statfs) {
    this.#readDisk = readDisk
  }

  /** Lets `keep` have what is left, and remembers what it took. One after another in a session: they share the room. */
  async use<Result extends { bytes: number }>(
    deps: RoomDeps,
    run: Run,
    keep: (maxBytes: number) => Promise<Result>,
  ): Promise<Result> {
    const key = run.session_id
    const before = this.#queues.get(key) ?? Promise.resolve()
    const result = before.catch(() => {}).then(() => this.#use(deps, run, keep))
    this.#queues.set(key, result)
    try {
      return await result
    } finally {
      if (this.#queues.get(key) === result) this.#queues.delete(key)
    }
  }

  async #use<Result extends { bytes: number }>(
    deps: RoomDeps,
    run: Run,
    keep: (maxBytes: number) => Promise<Result>,
  ): Promise<Result> {
    const kept = await this.#find(deps, run)
    const left = (await this.#isDiskFull(deps)) ? 0 : deps.maxArtifactBytes - kept.bytes
    const result = await keep(Math.max(0, Math.min(MAX_BYTES_PER_RUN, left)))
    // At once: the row says so only when the run has ended.
    kept.bytes += result.bytes
    return result
  }

  async #find({ db }: RoomDeps, { tenant_id, session_id }: Run): Promise<{ bytes: number }> {
    const known = this.#kept.get(session_id)
    if (known && performance.now() - known.atMs < KNOWN_MS) return known
    const found = { bytes: await sumKeptBytes(db, tenant_id, session_id), atMs: performance.now() }
    this.#kept.delete(session_id)
    this.#kept.set(session_id, found)
    const [oldest] = this.#kept.keys()
    if (this.#kept.size > MAX_KNOWN && oldest !== undefined) this.#kept.delete(oldest)
    return found
  }

  async #isDiskFull({ dataDir }: RoomDeps): Promise<boolean> {
    const now = performance.now()
    if (now - this.#disk.atMs < DISK_CHECK_MS) return this.#disk.isFull
    const { bavail, blocks } = await this.#readDisk(dataDir)
    this.#disk = { isFull: bavail < blocks * MIN_FREE_SHARE, atMs: now }
    return this.#disk.isFull
  }
}
