interface Lock {
  shared: number
  isExclusive: boolean
  waiting: { isExclusive: boolean; start: () => void }[]
}

/**
 * Per tenant: any number of holders that only add blobs, or one that deletes. First come, first served, so that
 * neither kind waits for ever. Not to be taken again by who holds it.
 */
export class TenantLocks {
  readonly #locks = new Map<string, Lock>()

  async hold<Result>(tenantId: string, isExclusive: boolean, work: () => Promise<Result>): Promise<Result> {
    const lock = this.#locks.get(tenantId) ?? { shared: 0, isExclusive: false, waiting: [] }
    this.#locks.set(tenantId, lock)
    await new Promise<void>((start) => {
      lock.waiting.push({ isExclusive, start })
      admit(lock)
    })
    try {
      return await work()
    } finally {
      if (isExclusive) lock.isExclusive = false
      else lock.shared--
      admit(lock)
      if (lock.shared === 0 && !lock.isExclusive) this.#locks.delete(tenantId)
    }
  }
}

function admit(lock: Lock): void {
  for (let next = lock.waiting[0]; next !== undefined; next = lock.waiting[0]) {
    if (lock.isExclusive || (next.isExclusive && lock.shared > 0)) return
    lock.waiting.shift()
    if (next.isExclusive) lock.isExclusive = true
    else lock.shared++
    next.start()
  }
}
