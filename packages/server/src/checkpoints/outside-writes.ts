/** Writes that follow each other are saved together. */
const SAVE_DELAY_MS = 1_000
/** They are not waited for longer than this. */
const MAX_DELAY_MS = 10_000

/**
 * Files that clients write into a workspace beside its sandbox. While one is being written the files cannot be
 * replaced; and where no sandbox is at work, which would be saved in its time, they are saved a moment later.
 */
export class OutsideWrites {
  readonly #underWay = new Map<string, number>()
  readonly #replacing = new Set<string>()
  readonly #unsaved = new Map<string, { timer: NodeJS.Timeout; since: number; save: () => Promise<void> }>()

  readonly #saving = new Set<Promise<void>>()

  /** Files of the session are being written at this moment. */
  isWriting(sessionId: string): boolean {
    return this.#underWay.has(sessionId)
  }

  /** The files are being exchanged for others: whoever wants to write waits for that. */
  isReplacing(sessionId: string): boolean {
    return this.#replacing.has(sessionId)
  }

  async write<Result>(sessionId: string, work: () => Promise<Result>): Promise<Result> {
    this.#underWay.set(sessionId, (this.#underWay.get(sessionId) ?? 0) + 1)
    try {
      return await work()
    } finally {
      const left = (this.#underWay.get(sessionId) ?? 1) - 1
      if (left > 0) this.#underWay.set(sessionId, left)
      else this.#underWay.delete(sessionId)
    }
  }

  async replace<Result>(sessionId: string, work: () => Promise<Result>): Promise<Result> {
    this.#replacing.add(sessionId)
    try {
      return await work()
    } finally {
      this.#replacing.delete(sessionId)
    }
  }

  saveSoon(sessionId: string, save: () => Promise<void>): void {
    const now = performance.now()
    const { timer: before, since = now } = this.#unsaved.get(sessionId) ?? {}
    clearTimeout(before)
    const delayMs = Math.min(SAVE_DELAY_MS, since + MAX_DELAY_MS - now)
    const timer = setTimeout(() => {
      this.#unsaved.delete(sessionId)
      this.#save(save)
    }, delayMs)
    this.#unsaved.set(sessionId, { timer: timer.unref(), since, save })
  }

  /** Saves at once what would be saved soon, and resolves when everything is. */
  async flush(): Promise<void> {
    const unsaved = [...this.#unsaved.values()]
    this.#unsaved.clear()
    for (const { timer, save } of unsaved) {
      clearTimeout(timer)
      this.#save(save)
    }
    await Promise.all(this.#saving)
  }

  #save(save: () => Promise<void>): void {
    const saving = save().finally(() => this.#saving.delete(saving))
    this.#saving.add(saving)
  }
}
