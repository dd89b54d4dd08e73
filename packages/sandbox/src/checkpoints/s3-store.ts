import { randomUUID } from 'node:crypto'
import { basename } from 'node:path'
import { addAbortSignal, type Readable } from 'node:stream'
import { AshError } from '@ash-ai/shared'
import {
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3'
import { tenantPath } from './local-blobs.ts'
import { isHash } from './manifest-check.ts'
import {
  MAX_REMOTE_SWEEP_MS,
  type RemoteObject,
  type RemoteStore,
  type RemoteStoreConfig,
  type RemoteSweep,
} from './remote-store.ts'
import { isNotFound, isUnreachable, storeUnavailable } from './s3-errors.ts'

/** Of one request with its retries, the reading of its body included. */
const REQUEST_TIMEOUT_MS = 120_000
/** Without a byte in either direction. */
const IDLE_TIMEOUT_MS = 30_000
const CONNECT_TIMEOUT_MS = 5_000
const ATTEMPTS = 3
/** Far above any blob or manifest; a store that sends more is not ours. */
const MAX_OBJECT_BYTES = 1024 * 1024 * 1024
const DELETES_AT_ONCE = 16
/** Between this machine and the one that says when an object was stored. */
const MAX_CLOCK_SKEW_MS = 5 * 60_000
/** Names the database that a prefix belongs to. */
const OWNER_KEY = 'ash-store'

/** Objects `<prefix><tenant>/<ab>/<hash>` in a bucket of S3, or of anything that speaks its protocol. */
export async function openS3Store(
  config: RemoteStoreConfig,
  storeId: string,
  requestTimeoutMs = REQUEST_TIMEOUT_MS,
): Promise<RemoteStore> {
  const store = new S3Store(config, storeId, requestTimeoutMs)
  try {
    await store.claim()
  } catch (error) {
    // One that is only out of reach now is asked again with its first use.
    if (!store.isReachable) return store
    store.close()
    throw error
  }
  return store
}

class S3Store implements RemoteStore {
  readonly #client: S3Client
  readonly #config: RemoteStoreConfig
  readonly #storeId: string
  readonly #requestTimeoutMs: number
  isReachable = true
  /** Until then nothing is asked of a prefix that may be another's. */
  #isOurs = false

  constructor(config: RemoteStoreConfig, storeId: string, requestTimeoutMs: number) {
    this.#config = config
    this.#storeId = storeId
    this.#requestTimeoutMs = requestTimeoutMs
    this.#client = new S3Client(clientOptions(config))
  }

  /** The first database to come owns the prefix. */
  async claim(): Promise<void> {
    if ((await this.#owner()) === undefined) {
      const command = new PutObjectCommand({ ...this.#object(OWNER_KEY), Body: Buffer.from(this.#storeId) })
      await this.#attempt('claim its prefix', (abortSignal) => this.#client.send(command, { abortSignal }))
    }
    await this.#checkOwner()
    this.#isOurs = true
  }

  async put(tenantId: string, hash: string, bytes: Uint8Array): Promise<void> {
    await this.#put('store an object', keyOf(tenantId, hash), bytes)
  }

  get(tenantId: string, hash: string): Promise<Buffer | undefined> {
    return this.#get('read an object', keyOf(tenantId, hash))
  }

  has(tenantId: string, hash: string): Promise<{ modifiedMs: number } | undefined> {
    return this.#request('look for an object', async (abortSignal) => {
      const command = new HeadObjectCommand(this.#object(keyOf(tenantId, hash)))
      const found = await unlessMissing(this.#client.send(command, { abortSignal }))
      // Without a time it counts as too old to rely on.
      return found && { modifiedMs: found.LastModified?.getTime() ?? 0 }
    })
  }

  async *list(tenantId: string): AsyncGenerator<RemoteObject> {
    // What is not referred to will be deleted: by the database that the objects belong to, then.
    await this.#checkOwner()
    for await (const { key, bytes, modifiedMs } of this.#list(folderOf(tenantId))) {
      const hash = key.slice(key.lastIndexOf('/') + 1)
      if (isHash(hash) && key === keyOf(tenantId, hash)) yield { hash, bytes, modifiedMs }
    }
  }

  async beginSweep(tenantId: string): Promise<RemoteSweep> {
    // The end is counted from before the others can see it, so that for them it is never over too early.
    const endsAtMs = Date.now() + MAX_REMOTE_SWEEP_MS
    const key = `${sweepsOf(tenantId)}${randomUUID()}`
    await this.#put('announce a sweep', key, Buffer.alloc(0))
    return { endsAtMs, end: async () => void (await this.#delete(key)) }
  }

  async isSwept(tenantId: string): Promise<boolean> {
    for await (const { modifiedMs } of this.#list(sweepsOf(tenantId))) {
      if (modifiedMs > Date.now() - MAX_REMOTE_SWEEP_MS - MAX_CLOCK_SKEW_MS) return true
    }
    return false
  }

  /** One by one: the S3 side of Google's storage has no request that deletes many. */
  async delete(tenantId: string, hashes: readonly string[]): Promise<void> {
    for (let start = 0; start < hashes.length; start += DELETES_AT_ONCE) {
      const batch = hashes.slice(start, start + DELETES_AT_ONCE)
      await Promise.all(batch.map((hash) => this.#delete(keyOf(tenantId, hash))))
    }
  }

  close(): void {
    this.#client.destroy()
  }

  async #checkOwner(): Promise<void> {
    if ((await this.#owner()) === this.#storeId) return
    const { bucket, prefix } = this.#config
    throw new AshError(
      'store_unavailable',
      `"${bucket}/${prefix}" holds the checkpoints of another database. Name a prefix of its own in ASH_SNAPSHOT_URL.`,
    )
  }

  async #owner(): Promise<string | undefined> {
    return (await this.#attempt('read whose it is', (signal) => this.#read(OWNER_KEY, signal)))?.toString()
  }

  /** Keys without the prefix of the store. */
  async *#list(folder: string): AsyncGenerator<{ key: string; bytes: number; modifiedMs: number }> {
    const { bucket: Bucket, prefix } = this.#config
    let ContinuationToken: string | undefined
    do {
      const command = new ListObjectsV2Command({ Bucket, Prefix: `${prefix}${folder}`, ContinuationToken })
      const page = await this.#request('list objects', (abortSignal) =>
        this.#client.send(command, { abortSignal }),
      )
      for (const { Key = '', Size = 0, LastModified } of page.Contents ?? []) {
        // Without a time it counts as new, and is left alone.
        const modifiedMs = LastModified?.getTime() ?? Date.now()
        yield { key: Key.slice(prefix.length), bytes: Size, modifiedMs }
      }
      ContinuationToken = page.IsTruncated ? page.NextContinuationToken : undefined
    } while (ContinuationToken !== undefined)
  }

  #put(action: string, key: string, bytes: Uint8Array): Promise<unknown> {
    const command = new PutObjectCommand({ ...this.#object(key), Body: bytes })
    return this.#request(action, (abortSignal) => this.#client.send(command, { abortSignal }))
  }

  #get(action: string, key: string): Promise<Buffer | undefined> {
    return this.#request(action, (signal) => this.#read(key, signal))
  }

  async #read(key: string, abortSignal: AbortSignal): Promise<Buffer | undefined> {
    const command = new GetObjectCommand(this.#object(key))
    const found = await unlessMissing(this.#client.send(command, { abortSignal }))
    return found && readBody(addAbortSignal(abortSignal, found.Body as Readable))
  }

  #delete(key: string): Promise<unknown> {
    const command = new DeleteObjectCommand(this.#object(key))
    return this.#request('delete an object', (abortSignal) =>
      unlessMissing(this.#client.send(command, { abortSignal })),
    )
  }

  async #request<Result>(action: string, run: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    if (!this.#isOurs) await this.claim()
    return this.#attempt(action, run)
  }

  async #attempt<Result>(action: string, run: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    try {
      const result = await run(AbortSignal.timeout(this.#requestTimeoutMs))
      this.isReachable = true
      return result
    } catch (error) {
      this.isReachable = !isUnreachable(error)
      throw storeUnavailable(action, error, this.#config)
    }
  }

  #object(key: string): { Bucket: string; Key: string } {
    return { Bucket: this.#config.bucket, Key: `${this.#config.prefix}${key}` }
  }
}

function clientOptions({ endpoint, region, pathStyle }: RemoteStoreConfig) {
  // Amazon's own servers need the right one, which the SDK finds; others take the first one there was.
  const told = region ?? (endpoint === undefined ? undefined : 'us-east-1')
  return {
    forcePathStyle: pathStyle,
    maxAttempts: ATTEMPTS,
    requestHandler: { connectionTimeout: CONNECT_TIMEOUT_MS, socketTimeout: IDLE_TIMEOUT_MS },
    // Not every server that speaks S3 knows its newer checksums, and hashes are checked here anyway.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    ...(endpoint !== undefined && { endpoint }),
    ...(told !== undefined && { region: told }),
  } as const
}

/** As on the disk: whatever a tenant is called, the name of its folder is harmless. */
const folderOf = (tenantId: string) => `${basename(tenantPath('', tenantId))}/`

/** Of no tenant: the name of a folder for one never begins like this. */
const sweepsOf = (tenantId: string) => `=sweeps/${folderOf(tenantId)}`

const keyOf = (tenantId: string, hash: string) => `${folderOf(tenantId)}${hash.slice(0, 2)}/${hash}`

async function unlessMissing<Result>(work: Promise<Result>): Promise<Result | undefined> {
  try {
    return await work
  } catch (error) {
    if (isNotFound(error)) return undefined
    throw error
  }
}

async function readBody(body: Readable): Promise<Buffer> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of body) {
    bytes += chunk.byteLength
    if (bytes > MAX_OBJECT_BYTES) throw new Error('too large')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}
