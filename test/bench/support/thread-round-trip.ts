import { isMainThread, parentPort, Worker } from 'node:worker_threads'

const WARM_UP = 1000
const COUNT = 4000

/** Milliseconds of one message to an otherwise idle thread and back, many times: what any hand-over costs here. */
export async function timeThreadRoundTrips(): Promise<number[]> {
  const worker = new Worker(new URL(import.meta.url))
  let answered = () => {}
  worker.on('message', () => answered())
  const samples: number[] = []
  for (let sent = 0; sent < WARM_UP + COUNT; sent++) {
    const started = performance.now()
    await new Promise<void>((resolve) => {
      answered = resolve
      worker.postMessage({ id: sent, text: 'as long as a small statement' })
    })
    if (sent >= WARM_UP) samples.push(performance.now() - started)
  }
  await worker.terminate()
  return samples
}

if (!isMainThread) parentPort?.on('message', ({ id }: { id: number }) => parentPort?.postMessage({ id }))
