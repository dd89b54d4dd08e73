import { setTimeout as sleep } from 'node:timers/promises'
import { StreamConnection, type Target } from './stream-connection.ts'

/** Every target runs one turn after the other, all at once; or streams are opened and left open. */
export type LoadJob =
  | {
      targets: Target[]
      content: string
      /** No turn begins after this; each target runs at least one. */
      forMs: number
      /** From the end of a turn to the next; the targets begin spread over it. */
      pauseMs?: number
      /** More of the same at the same time, but not counted. */
      beside?: Target[]
    }
  | { targets: Target[]; follow: true }

export interface LoadResult {
  turnMs: number[]
  events: number
  elapsedMs: number
}

// The clients, in a process of their own: each job it is sent is run and answered with its result.
const kept = new Map<string, StreamConnection>()

process.on('message', (job: LoadJob) => {
  run(job).then(
    (result) => process.send?.(result),
    (error: Error) => process.send?.({ error: error.message }),
  )
})
process.on('disconnect', () => process.exit(0))

async function run(job: LoadJob): Promise<LoadResult> {
  const result: LoadResult = { turnMs: [], events: 0, elapsedMs: 0 }
  if ('follow' in job) {
    for (const target of job.targets) await (await StreamConnection.open(target)).follow()
    return result
  }
  const { targets, beside = [], content, forMs, pauseMs = 0 } = job
  const connections = await Promise.all([...targets, ...beside].map(connectionTo))
  const started = performance.now()
  const loop = async (connection: StreamConnection, index: number) => {
    if (pauseMs > 0) await sleep((pauseMs * index) / targets.length)
    do {
      const { ms, events } = await connection.runTurn(content)
      if (index < targets.length) {
        result.turnMs.push(ms)
        result.events += events
      }
      if (pauseMs > 0) await sleep(pauseMs)
    } while (performance.now() - started < forMs)
  }
  await Promise.all(connections.map(loop))
  return { ...result, elapsedMs: performance.now() - started }
}

async function connectionTo(target: Target): Promise<StreamConnection> {
  const connection = kept.get(target.url) ?? (await StreamConnection.open(target))
  kept.set(target.url, connection)
  return connection
}
