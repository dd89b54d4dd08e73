import type { Output } from './output.ts'
import { sizeOf } from './quantities.ts'

type ProgressOutput = Pick<Output, 'isWatched' | 'progress'>

const PROGRESS_MS = 100
const PATIENCE_MS = 1000

/** Says what is being waited for, if it takes longer than a moment. */
export async function whileWaiting<Result>(
  output: ProgressOutput,
  what: string,
  work: Promise<Result>,
): Promise<Result> {
  let seconds = 0
  const timer = setInterval(() => {
    seconds += PATIENCE_MS / 1000
    if (seconds === 1 || output.isWatched) output.progress(`${what}… ${seconds} s`)
  }, PATIENCE_MS)
  try {
    return await work
  } finally {
    clearInterval(timer)
  }
}

/** The parts as they are, and on a terminal how many bytes have passed. */
export async function* withProgress(
  parts: AsyncIterable<Uint8Array>,
  output: ProgressOutput,
  what: string,
  totalBytes?: number,
): AsyncGenerator<Uint8Array> {
  const total = totalBytes === undefined ? '' : ` of ${sizeOf(totalBytes)}`
  let bytes = 0
  let shownAt = 0
  for await (const part of parts) {
    yield part
    bytes += part.length
    if (!output.isWatched || Date.now() - shownAt < PROGRESS_MS) continue
    shownAt = Date.now()
    output.progress(`${what} ${sizeOf(bytes)}${total}`)
  }
}
