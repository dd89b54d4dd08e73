import type { Outcome } from './exchange.ts'
import type { RequestContext } from './request-context.ts'
import type { Step } from './script.ts'

/** A /v1/messages request as it came in; what became of it is added once known. */
export type RecordedRequest = RequestContext & {
  id: string
  receivedAt: number
  /** The step chosen for it; none where it was refused. */
  reply?: Step
  outcome?: Outcome
  /** The HTTP status sent; none where the connection ended before. */
  status?: number
  durationMs?: number
}

type Waiter = {
  predicate: (request: RecordedRequest) => boolean
  settle: (request: RecordedRequest | Error) => void
}

// Bodies hold whole conversations, so that a limit on their number alone would not bound memory.
const MAX_KEPT_BYTES = 128 * 1024 * 1024

/** The last requests, and whoever waits for one. */
export class RequestLog {
  readonly requests: RecordedRequest[] = []
  readonly #sizes: number[] = []
  readonly #waiters = new Set<Waiter>()
  readonly #keep: number
  #bytes = 0

  constructor(keep: number) {
    this.#keep = keep
  }

  add(request: RecordedRequest, bytes: number): void {
    this.requests.push(request)
    this.#sizes.push(bytes)
    this.#bytes += bytes
    while (this.requests.length > this.#keep || this.#bytes > MAX_KEPT_BYTES) this.#dropOldest()
    this.#notify(request)
  }

  complete(request: RecordedRequest, result: { outcome: Outcome; status?: number }): void {
    Object.assign(request, result, { durationMs: Date.now() - request.receivedAt })
    this.#notify(request)
  }

  waitFor(predicate: Waiter['predicate'], timeoutMs: number): Promise<RecordedRequest> {
    const found = this.requests.find(predicate)
    return found === undefined ? this.#wait(predicate, timeoutMs) : Promise.resolve(found)
  }

  clear(): void {
    this.requests.length = 0
    this.#sizes.length = 0
    this.#bytes = 0
  }

  rejectWaiters(error: Error): void {
    for (const waiter of this.#waiters) waiter.settle(error)
  }

  #wait(predicate: Waiter['predicate'], timeoutMs: number): Promise<RecordedRequest> {
    return new Promise((resolve, reject) => {
      const settle: Waiter['settle'] = (request) => {
        clearTimeout(timer)
        this.#waiters.delete(waiter)
        if (request instanceof Error) reject(request)
        else resolve(request)
      }
      const waiter = { predicate, settle }
      const timer = setTimeout(() => settle(new Error(`No such request within ${timeoutMs} ms`)), timeoutMs)
      this.#waiters.add(waiter)
    })
  }

  #notify(request: RecordedRequest): void {
    for (const { predicate, settle } of this.#waiters) if (holds(predicate, request, settle)) settle(request)
  }

  #dropOldest(): void {
    this.requests.shift()
    this.#bytes -= this.#sizes.shift() ?? 0
  }
}

// A predicate that throws is its waiter's failure, not that of the request being served.
function holds(predicate: Waiter['predicate'], request: RecordedRequest, settle: Waiter['settle']): boolean {
  try {
    return predicate(request)
  } catch (error) {
    settle(error instanceof Error ? error : new Error(String(error)))
    return false
  }
}
