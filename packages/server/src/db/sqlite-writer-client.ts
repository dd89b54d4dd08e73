import { Worker } from 'node:worker_threads'
import type { StatementResult } from './sqlite-statement.ts'
import type {
  SqliteFault,
  WriterOptions,
  WriterReply,
  WriterRequest,
  WriterStatement,
} from './sqlite-writer.ts'

/** An error of SQLite itself: its message, and its code such as 2067 for a broken unique constraint. */
export class SqliteError extends Error {
  override readonly name = 'SqliteError'
  readonly code: string | undefined
  readonly errcode: number | undefined

  constructor(fault: SqliteFault) {
    super(fault.message)
    this.code = fault.code
    this.errcode = fault.errcode
  }
}

interface Pending {
  resolve: (result: StatementResult) => void
  reject: (error: Error) => void
}

/** The main thread's end of the writer thread. Once that thread is gone, every call fails and says why. */
export class SqliteWriter {
  readonly #worker: Worker
  readonly #pending = new Map<number, Pending>()
  readonly #ready = Promise.withResolvers<void>()
  readonly #exited = Promise.withResolvers<void>()
  #failure: Error | undefined
  #lastId = 0

  /** Resolves when the database file exists and accepts writes. */
  static async open(options: WriterOptions): Promise<SqliteWriter> {
    const writer = new SqliteWriter(options)
    await writer.#ready.promise
    return writer
  }

  private constructor(options: WriterOptions) {
    const file = import.meta.url.endsWith('.ts') ? './sqlite-writer.ts' : './sqlite-writer.js'
    this.#worker = new Worker(new URL(file, import.meta.url), { workerData: options, env: {}, execArgv: [] })
    this.#worker.on('message', (reply: WriterReply) => this.#receive(reply))
    this.#worker.on('error', (error) => this.#fail(`The database writer failed: ${describe(error)}`))
    this.#worker.on('exit', () => {
      this.#fail('The database writer has stopped')
      this.#exited.resolve()
    })
    this.#ready.promise.catch(() => {})
  }

  execute(
    sql: string,
    parameters: readonly unknown[],
    transaction?: WriterStatement['transaction'],
  ): Promise<StatementResult> {
    if (this.#failure) return Promise.reject(this.#failure)
    const id = ++this.#lastId
    return new Promise((resolve, reject) => {
      this.#post({ id, sql, parameters, transaction })
      this.#pending.set(id, { resolve, reject })
    })
  }

  /** Finishes what was posted before, then ends the thread. */
  async close(): Promise<void> {
    if (!this.#failure) this.#post({ close: true })
    await this.#exited.promise
  }

  /** Ends the thread at once, whatever it is doing. */
  async terminate(): Promise<void> {
    await this.#worker.terminate()
  }

  #post(request: WriterRequest): void {
    this.#worker.postMessage(request)
  }

  #receive(reply: WriterReply): void {
    if ('ready' in reply) this.#ready.resolve()
    else this.#settle(reply)
  }

  #settle(reply: Exclude<WriterReply, { ready: true }>): void {
    const pending = this.#pending.get(reply.id)
    this.#pending.delete(reply.id)
    if ('error' in reply) pending?.reject(new SqliteError(reply.error))
    else pending?.resolve(reply)
  }

  #fail(message: string): void {
    this.#failure ??= new Error(message)
    this.#ready.reject(this.#failure)
    for (const { reject } of this.#pending.values()) reject(this.#failure)
    this.#pending.clear()
  }
}

const describe = (error: unknown) => (error instanceof Error ? error.message : String(error))
