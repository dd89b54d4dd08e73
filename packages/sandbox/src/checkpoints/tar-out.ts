import { Readable } from 'node:stream'
import type { CheckpointStore } from './checkpoint-store.ts'
import type { TarTask, TarThreadOptions } from './tar-thread.ts'
import { ThreadPool } from './thread-pool.ts'

/** The workspace of a checkpoint of this host as a tar archive, made while it is read, on a thread of its own. */
export async function workspaceTar(
  { dir, sync }: Pick<CheckpointStore, 'dir' | 'sync'>,
  tenantId: string,
  manifest: string,
): Promise<Readable> {
  const thread = openTarThread({ dir, sync })
  try {
    const first = await thread.run<Uint8Array>({ kind: 'begin', tenantId, manifest })
    return Readable.from(piecesOf(thread, first), { objectMode: false }).once(
      'close',
      () => void thread.close(),
    )
  } catch (error) {
    await thread.close()
    throw error
  }
}

async function* piecesOf(thread: TarThread, first: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let piece = first; piece.byteLength > 0; piece = await thread.run({ kind: 'next' })) yield piece
}

interface TarThread {
  run<Result>(task: TarTask): Promise<Result>
  close(): Promise<void>
}

export function openTarThread(workerData: TarThreadOptions): TarThread {
  const file = import.meta.url.endsWith('.ts') ? './tar-thread.ts' : './tar-thread.js'
  return new ThreadPool(new URL(file, import.meta.url), { threads: 1, workerData })
}
