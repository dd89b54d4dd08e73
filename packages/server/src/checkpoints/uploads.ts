import { type CheckpointStore, faultPoint, type RemoteStore, uploadCheckpoint } from '@ash-ai/sandbox'
import { isAshError } from '@ash-ai/shared'
import type { FastifyBaseLogger } from 'fastify'
import type { Db } from '../db/open-db.ts'
import type { CheckpointRow } from './checkpoint-queries.ts'

interface UploadDeps {
  db: Db
  hostId: string
  store: CheckpointStore
  remote: RemoteStore
  log: FastifyBaseLogger
}

type Upload = Pick<CheckpointRow, 'id' | 'tenant_id' | 'session_id' | 'manifest' | 'created_at'>

interface Pause {
  failures: number
  untilMs: number
}

const UPLOADS_AT_ONCE = 2
const FIRST_RETRY_MS = 1_000
const LAST_RETRY_MS = 5 * 60_000
/** Oldest checkpoints looked at for one that may be uploaded now. */
const MAX_SESSIONS_SEEN = 1_000

/**
 * Brings the checkpoints of this host to the remote store, oldest first, one of a tenant at a time. The list of what
 * is to be done is in the database, so that it survives everything, and nothing on it is given up.
 */
export class Uploads {
  readonly #deps: UploadDeps
  readonly #stop = new AbortController()
  /** Tenants with an upload under way. */
  readonly #busy = new Set<string>()
  /** Checkpoints that could not be uploaded, each for a reason of its own. */
  readonly #paused = new Map<string, Pause>()
  /** The store itself does not work. */
  #outage: Pause = { failures: 0, untilMs: 0 }
  #lanes: Promise<void>[] = []
  #resting = 0
  #wakes = 0
  #signal = Promise.withResolvers<void>()
  #rested = Promise.withResolvers<void>()

  constructor(deps: UploadDeps) {
    this.#deps = deps
  }

  start(): void {
    this.#lanes = Array.from({ length: UPLOADS_AT_ONCE }, () => this.#runLane())
  }

  /** There is something new to upload. */
  wake(): void {
    this.#wakes++
    this.#resting = 0
    this.#signal.resolve()
    this.#signal = Promise.withResolvers()
  }

  /** Resolves when nothing is under way, and nothing left that could be tried now. */
  async settled(): Promise<void> {
    while (this.#resting < this.#lanes.length && !this.#stop.signal.aborted) await this.#rested.promise
  }

  /** Goes on for so long. What is under way then is left as it is, and done again after the next start. */
  async close(graceMs = 0): Promise<void> {
    const late = Promise.withResolvers<void>()
    const timeout = setTimeout(late.resolve, graceMs).unref()
    await Promise.race([this.settled(), late.promise])
    clearTimeout(timeout)
    this.#stop.abort()
    this.wake()
    await Promise.all(this.#lanes)
  }

  async #runLane(): Promise<void> {
    const { signal } = this.#stop
    while (!signal.aborted) {
      const wakes = this.#wakes
      const upload = await this.#take()
      if (upload) await this.#attempt(upload)
      else if (!signal.aborted) await this.#rest(wakes)
    }
    this.#rested.resolve()
  }

  /** Until there is something new, or something to try again. */
  async #rest(wakesSeen: number): Promise<void> {
    if (wakesSeen !== this.#wakes) return
    const retries = [this.#outage, ...this.#paused.values()].map(({ untilMs }) => untilMs - Date.now())
    const nextMs = Math.min(LAST_RETRY_MS, ...retries.filter((ms) => ms > 0))
    this.#resting++
    if (this.#resting === this.#lanes.length) {
      this.#rested.resolve()
      this.#rested = Promise.withResolvers()
    }
    const timer = Promise.withResolvers<void>()
    const timeout = setTimeout(timer.resolve, nextMs).unref()
    await Promise.race([this.#signal.promise, timer.promise])
    clearTimeout(timeout)
    if (wakesSeen === this.#wakes) this.#resting--
  }

  /** The next upload, whose tenant is busy from now on. */
  async #take(): Promise<Upload | undefined> {
    if (this.#outage.untilMs > Date.now()) return undefined
    try {
      const uploads = await this.#listFirst()
      const next = uploads.find(({ tenant_id }) => !this.#busy.has(tenant_id))
      if (next) this.#busy.add(next.tenant_id)
      return next
    } catch (error) {
      this.#deps.log.error({ err: error }, 'the checkpoints to be uploaded could not be listed')
      this.#outage = later(this.#outage)
      return undefined
    }
  }

  /** Of each session the oldest that may be tried: the next one usually builds on it. */
  async #listFirst(): Promise<Upload[]> {
    const now = Date.now()
    for (const [id, { untilMs }] of this.#paused) if (untilMs < now - LAST_RETRY_MS) this.#paused.delete(id)
    const paused = [...this.#paused].filter(([, { untilMs }]) => untilMs > now).map(([id]) => id)
    let query = this.#deps.db
      .selectFrom('checkpoints')
      .select(['id', 'tenant_id', 'session_id', 'manifest', 'created_at'])
      .where('owner_id', '=', this.#deps.hostId)
      .where('uploaded_at', 'is', null)
    if (paused.length > 0) query = query.where('id', 'not in', paused)
    const rows = await query.orderBy('created_at').limit(MAX_SESSIONS_SEEN).execute()
    return [...Map.groupBy(rows, ({ session_id }) => session_id).values()].flatMap(([first]) => first ?? [])
  }

  /** Never throws. */
  async #attempt(upload: Upload): Promise<void> {
    const { log } = this.#deps
    const { signal } = this.#stop
    const about = { checkpointId: upload.id, sessionId: upload.session_id }
    try {
      const put = await unlessAborted(signal, this.#upload(upload))
      this.#outage = { failures: 0, untilMs: 0 }
      this.#paused.delete(upload.id)
      log.debug({ ...about, ...put }, 'checkpoint uploaded')
    } catch (error) {
      if (signal.aborted) return
      log.warn({ ...about, err: error }, 'checkpoint not uploaded; it is tried again')
      if (isAshError(error, 'store_unavailable')) this.#outage = later(this.#outage)
      else this.#paused.set(upload.id, later(this.#paused.get(upload.id)))
    } finally {
      this.#busy.delete(upload.tenant_id)
      // The other lane may have found only this tenant to work for.
      this.wake()
    }
  }

  async #upload(upload: Upload) {
    const { db, store, remote } = this.#deps
    const { id, tenant_id: tenantId, manifest } = upload
    const uploadedBefore = await this.#findUploadedBefore(upload)
    const request = { tenantId, manifest, ...(uploadedBefore !== undefined && { uploadedBefore }) }
    const put = await uploadCheckpoint(store, remote, request, this.#stop.signal)
    // None, where it was deleted meanwhile: then what was uploaded is garbage.
    await db
      .updateTable('checkpoints')
      .set({ uploaded_at: Date.now() })
      .where('tenant_id', '=', tenantId)
      .where('id', '=', id)
      .where('uploaded_at', 'is', null)
      .execute()
    faultPoint('upload-recorded')
    return put
  }

  async #findUploadedBefore({ tenant_id, session_id, created_at }: Upload): Promise<string | undefined> {
    const row = await this.#deps.db
      .selectFrom('checkpoints')
      .select('manifest')
      .where('tenant_id', '=', tenant_id)
      .where('session_id', '=', session_id)
      .where('created_at', '<', created_at)
      .where('uploaded_at', 'is not', null)
      .orderBy('created_at', 'desc')
      .limit(1)
      .executeTakeFirst()
    return row?.manifest
  }
}

function later({ failures }: Pause = { failures: 0, untilMs: 0 }): Pause {
  const ms = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** failures)
  return { failures: failures + 1, untilMs: Date.now() + ms }
}

async function unlessAborted<Result>(signal: AbortSignal, work: Promise<Result>): Promise<Result> {
  const stopped = Promise.withResolvers<never>()
  const stop = () => stopped.reject(signal.reason)
  signal.addEventListener('abort', stop)
  try {
    return await Promise.race([work, stopped.promise])
  } finally {
    signal.removeEventListener('abort', stop)
  }
}
