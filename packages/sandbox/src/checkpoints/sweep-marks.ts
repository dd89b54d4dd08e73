import { setImmediate as nextTick } from 'node:timers/promises'
import { AshError, isAshError } from '@ash-ai/shared'
import type { CheckpointStore } from './checkpoint-store.ts'
import type { RemoteStore } from './remote-store.ts'
import { fetchBlob, isLocal } from './remote-transfer.ts'

/** A checkpoint in the database. */
export interface KnownCheckpoint {
  id: string
  manifest: string
  /** Made on this host, whose store has it; other hosts have theirs. */
  isOwn: boolean
}

/** How many hashes are taken in before others get their turn. */
const HASHES_PER_TICK = 5_000

/** The blobs that checkpoints refer to, manifests among them. Each manifest is read once. */
export class SweepMarks {
  readonly #store: CheckpointStore
  readonly #remote: RemoteStore | undefined
  readonly #tenantId: string
  readonly #hashes = new Set<string>()
  readonly #read = new Set<string>()

  constructor(store: CheckpointStore, remote: RemoteStore | undefined, tenantId: string) {
    this.#store = store
    this.#remote = remote
    this.#tenantId = tenantId
  }

  has(hash: string): boolean {
    return this.#hashes.has(hash)
  }

  /** Those of other hosts count as far as their manifest is here: the rest of this host's blobs are not for them. */
  async addLocal(checkpoints: Iterable<KnownCheckpoint>): Promise<void> {
    for (const checkpoint of checkpoints) {
      const { manifest, isOwn } = checkpoint
      if (this.#read.has(manifest)) continue
      if (isOwn || (await isLocal(this.#store, this.#tenantId, manifest))) await this.#add(checkpoint)
    }
  }

  /** Every one of them, wherever its manifest is. */
  async addAll(checkpoints: Iterable<KnownCheckpoint>): Promise<void> {
    for (const checkpoint of checkpoints) {
      if (!this.#read.has(checkpoint.manifest)) await this.#add(checkpoint)
    }
  }

  async #add(checkpoint: KnownCheckpoint): Promise<void> {
    const { manifest } = checkpoint
    try {
      if (this.#remote && !(await isLocal(this.#store, this.#tenantId, manifest))) {
        await fetchBlob(this.#store, this.#remote, this.#tenantId, manifest)
      }
      await this.#mark(await this.#store.hashes(this.#tenantId, manifest))
    } catch (error) {
      throw isAshError(error, 'checkpoint_damaged') ? unreadable(checkpoint, error) : error
    }
    this.#read.add(manifest)
  }

  async #mark(hashes: readonly string[]): Promise<void> {
    for (let start = 0; start < hashes.length; start += HASHES_PER_TICK) {
      for (const hash of hashes.slice(start, start + HASHES_PER_TICK)) this.#hashes.add(hash)
      await nextTick()
    }
  }
}

const unreadable = ({ id, isOwn }: KnownCheckpoint, cause: Error) =>
  new AshError(
    'checkpoint_damaged',
    isOwn
      ? `Checkpoint ${id} cannot be read, so that nothing was deleted. Delete that checkpoint first.`
      : `Checkpoint ${id} of another host cannot be read yet, so that nothing was deleted.`,
    { cause },
  )
