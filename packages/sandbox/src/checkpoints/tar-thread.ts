/** A thread for one archive, which is read or written here with calls that wait. */
import { parentPort, workerData } from 'node:worker_threads'
import { toFault } from './checkpoint-fault.ts'
import { tarBlocks } from './tar-blocks.ts'
import { checkTar, type OverlayTask, overlayTar, type TarCheck } from './tar-overlay.ts'
import type { ThreadReply } from './thread-pool.ts'

export interface TarThreadOptions {
  dir: string
  sync: boolean
}

export type TarTask =
  | ({ kind: 'check' } & TarCheck)
  | ({ kind: 'overlay' } & OverlayTask)
  /** Answered with the first piece of the archive. */
  | { kind: 'begin'; tenantId: string; manifest: string }
  /** Answered with the next piece; an empty one is the end. */
  | { kind: 'next' }

/** About as much as is worth a message. */
const PIECE_BYTES = 256 * 1024

if (parentPort) serve(parentPort, workerData as TarThreadOptions)

function serve(port: NonNullable<typeof parentPort>, options: TarThreadOptions): void {
  let blocks: Iterator<Buffer> = [].values()
  const run = (task: TarTask): unknown => {
    if (task.kind === 'check') return checkTar(task)
    if (task.kind === 'overlay') return overlayTar(options, task)
    if (task.kind === 'begin') blocks = tarBlocks({ ...task, dir: options.dir })
    return nextPiece(blocks)
  }
  port.on('message', async (task: TarTask) => {
    port.postMessage(await answer(() => run(task)))
  })
}

async function answer(work: () => unknown): Promise<ThreadReply<unknown>> {
  try {
    return { result: await work() }
  } catch (error) {
    const { code, message } = toFault(error, 'The archive')
    return { fault: { code, message } }
  }
}

function nextPiece(blocks: Iterator<Buffer>): Buffer {
  const piece: Buffer[] = []
  for (let bytes = 0; bytes < PIECE_BYTES; ) {
    const { value, done } = blocks.next()
    if (done) break
    piece.push(value)
    bytes += value.length
  }
  return Buffer.concat(piece)
}
