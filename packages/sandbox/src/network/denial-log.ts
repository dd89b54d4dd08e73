import type { Destination, Objection } from './network-policy.ts'

/** A destination that was refused, `count` times since the last such event. */
export interface EgressDenied extends Destination, Objection {
  count: number
}

const WINDOW_MS = 10_000
const MAX_DESTINATIONS = 64
/** Stands for whatever is refused beyond that many destinations: a scan is one event, not thousands. */
const OTHERS: Destination & Objection = { host: '*', port: 0, reason: 'many other destinations were refused' }

/** Tells of a refused destination at once, and of its repetitions no more than once in a while. */
export class DenialLog {
  readonly #emit: (event: EgressDenied) => void
  readonly #windowMs: number
  readonly #recent = new Map<string, { event: EgressDenied; timer: NodeJS.Timeout }>()
  total = 0

  constructor(emit: (event: EgressDenied) => void, windowMs = WINDOW_MS) {
    this.#emit = emit
    this.#windowMs = windowMs
  }

  add(denial: Destination & Objection): void {
    this.total++
    const isKnown = this.#recent.has(keyOf(denial))
    const counted = isKnown || this.#recent.size < MAX_DESTINATIONS ? denial : OTHERS
    const key = keyOf(counted)
    const recent = this.#recent.get(key)
    if (recent) {
      recent.event = { ...counted, count: recent.event.count + 1 }
      return
    }
    this.#emit({ ...counted, count: 1 })
    const timer = setInterval(() => this.#endWindow(key), this.#windowMs).unref()
    this.#recent.set(key, { event: { ...counted, count: 0 }, timer })
  }

  /** Tells what was still being counted. */
  close(): void {
    for (const { event, timer } of this.#recent.values()) {
      clearInterval(timer)
      if (event.count > 0) this.#emit(event)
    }
    this.#recent.clear()
  }

  #endWindow(key: string): void {
    const recent = this.#recent.get(key)
    if (!recent) return
    if (recent.event.count > 0) {
      this.#emit(recent.event)
      recent.event = { ...recent.event, count: 0 }
    } else {
      clearInterval(recent.timer)
      this.#recent.delete(key)
    }
  }
}

function keyOf({ host, port }: Destination): string {
  return `${host} ${port}`
}
