import { Worker } from 'node:worker_threads'
import { AshError, type ErrorCode } from '@ash-ai/shared'

export type ThreadReply<Result> = { result: Result } | { fault: Fault }

interface Fault {
  code: ErrorCode
  message: string
  detail?: string
}

interface Job {
  /** Called when a thread is free for it. */
  prepare: () => Promise<unknown>
  settle: (reply: ThreadReply<unknown>) => void
  reject: (error: unknown) => void
}

interface Thread {
  worker: Worker
  job: Job | undefined
}

/**
 * Threads that do one task each at a time; further tasks wait. They start with the first tasks that need them, and one that
 * dies fails its own task only.
 */
export class ThreadPool {
  readonly #entry: URL
  readonly #workerData: unknown
  readonly #size: number
  readonly #threads = new Set<Thread>()
  readonly #queue: Job[] = []
  #isClosed = false

  constructor(entry: URL, { threads, workerData }: { threads: number; workerData: unknown }) {
    this.#entry = entry
    this.#size = threads
    this.#workerData = workerData
  }

  /** The task itself, or a function that makes it when a thread is free for it. */
  run<Result>(task: unknown): Promise<Result> {
    if (this.#isClosed) return Promise.reject(new AshError('server_stopping', 'Checkpoints are closed'))
    return new Promise((resolve, reject) => {
      const settle = (reply: ThreadReply<unknown>) => {
        if ('fault' in reply) reject(toError(reply.fault))
        else resolve(reply.result as Result)
      }
      const prepare = async () => (typeof task === 'function' ? task() : task)
      this.#queue.push({ prepare, settle, reject })
      this.#dispatch()
    })
  }

  /** Ends the threads at once; what they were doing fails. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const job of this.#queue.splice(0)) job.settle(stopped('was not begun'))
    await Promise.all(Array.from(this.#threads, ({ worker }) => worker.terminate()))
  }

  #dispatch(): void {
    const thread = this.#idleThread()
    const job = thread && this.#queue.shift()
    if (!thread || !job) return
    thread.job = job
    thread.worker.ref()
    job.prepare().then(
      (task) => thread.worker.postMessage(task),
      (error: unknown) => {
        job.reject(error)
        this.#free(thread)
      },
    )
  }

  #idleThread(): Thread | undefined {
    if (this.#queue.length === 0) return undefined
    for (const thread of this.#threads) if (thread.job === undefined) return thread
    return this.#threads.size < this.#size ? this.#startThread() : undefined
  }

  #startThread(): Thread {
    const worker = new Worker(this.#entry, { workerData: this.#workerData, env: {}, execArgv: [] })
    const thread: Thread = { worker, job: undefined }
    this.#threads.add(thread)
    let reason = 'ended'
    worker.on('message', (reply: ThreadReply<unknown>) => this.#finish(thread, reply))
    worker.on('error', (error) => {
      reason = error instanceof Error ? error.message : String(error)
    })
    worker.on('exit', () => {
      this.#threads.delete(thread)
      this.#finish(thread, stopped(`was not finished: its thread ended (${reason})`))
    })
    return thread
  }

  #finish(thread: Thread, reply: ThreadReply<unknown>): void {
    thread.job?.settle(reply)
    this.#free(thread)
  }

  #free(thread: Thread): void {
    thread.job = undefined
    // A thread without work keeps no process alive.
    thread.worker.unref()
    this.#dispatch()
  }
}

/** The detail is for the log of the server, not for clients. */
const toError = ({ code, message, detail }: Fault) =>
  new AshError(code, message, detail === undefined ? {} : { cause: new Error(detail) })

const stopped = (what: string): ThreadReply<never> => ({
  fault: { code: 'checkpoint_failed', message: `The work on a checkpoint ${what}` },
})
