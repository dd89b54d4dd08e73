import { randomUUID } from 'node:crypto'
import { mkdir, open, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { AshError, isAshError } from '@ash-ai/shared'
import { codeOf } from './checkpoint-fault.ts'
import type { CheckpointStore, SavedCheckpoint } from './checkpoint-store.ts'
import { temporaryPath } from './local-blobs.ts'
import { openTarThread } from './tar-out.ts'
import { maxTarBytes, type OverlayTask, type TarCheck } from './tar-overlay.ts'

/** An archive on this host; disposing of it deletes it. */
export interface ReceivedTar extends AsyncDisposable {
  readonly path: string
}

type TarBounds = Pick<OverlayTask, 'maxBytes' | 'maxEntries'>

/**
 * Takes in a tar or gzipped tar whole, before anything else: so a slow client holds up nobody, and nothing makes way
 * for what is none. Throws payload_too_large or archive_invalid.
 */
export async function receiveTar(
  store: CheckpointStore,
  archive: Readable,
  bounds: TarBounds,
): Promise<ReceivedTar> {
  // It may break before anybody listens; what reads it is told all the same.
  archive.on('error', () => {})
  const path = join(temporaryPath(store.dir), randomUUID())
  const received = { path, [Symbol.asyncDispose]: () => rm(path, { force: true }) }
  try {
    await mkdir(temporaryPath(store.dir), { recursive: true, mode: 0o700 })
    await receive(archive, path, maxTarBytes(bounds))
    await check(store, { archive: path, ...bounds })
    return received
  } catch (error) {
    await received[Symbol.asyncDispose]()
    throw isAshError(error) ? error : toReceiveError(error)
  }
}

/**
 * Saves a checkpoint: `base`, which has to be on this host, with an archive laid over its workspace. Throws
 * archive_invalid or payload_too_large, and then nothing has happened. As to `commit`, see CheckpointStore.save.
 */
export async function saveTar<Result>(
  store: CheckpointStore,
  request: OverlayTask,
  commit: (saved: SavedCheckpoint) => Promise<Result>,
): Promise<Result> {
  const thread = openTarThread({ dir: store.dir, sync: store.sync })
  try {
    return await store.shared(request.tenantId, async () => {
      await assertWhole(store, request)
      return commit(await thread.run<SavedCheckpoint>({ kind: 'overlay', ...request }))
    })
  } finally {
    await thread.close()
  }
}

async function check({ dir, sync }: CheckpointStore, archive: TarCheck): Promise<void> {
  const thread = openTarThread({ dir, sync })
  try {
    await thread.run({ kind: 'check', ...archive })
  } finally {
    await thread.close()
  }
}

async function receive(archive: Readable, path: string, maxBytes: number): Promise<void> {
  await using file = await open(path, 'wx', 0o600)
  await file.writeFile(bounded(archive, maxBytes))
}

async function* bounded(source: AsyncIterable<Uint8Array>, maxBytes: number): AsyncGenerator<Uint8Array> {
  let bytes = 0
  for await (const chunk of source) {
    bytes += chunk.byteLength
    if (bytes > maxBytes) throw new AshError('payload_too_large', `An archive may have ${maxBytes} bytes`)
    yield chunk
  }
}

function toReceiveError(cause: unknown): AshError {
  if (['ENOSPC', 'EDQUOT'].includes(codeOf(cause)))
    return new AshError('disk_full', 'There is no room left for the archive', { cause })
  if (codeOf(cause).startsWith('E') && !['ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE'].includes(codeOf(cause)))
    return new AshError('checkpoint_failed', 'The archive could not be stored', { cause })
  return new AshError('archive_invalid', 'The archive was cut off on its way', { cause })
}

/** What this host lacks of `base`, it would lack of the new checkpoint. */
async function assertWhole(store: CheckpointStore, { tenantId, base }: OverlayTask) {
  if (base === undefined) return
  const missing = await store.missing(tenantId, base)
  if (missing.length > 0)
    throw new AshError('checkpoint_damaged', 'Parts of the checkpoint under the archive are not on this host')
}
