/** Lets holders in one after another, in the order they asked. */
export class TurnQueue {
  #isTaken = false
  readonly #waiting: (() => void)[] = []

  get isFree(): boolean {
    return !this.#isTaken
  }

  /** Resolves when it is this caller's turn, with the function that ends it. */
  async take(): Promise<() => void> {
    if (this.#isTaken) await new Promise<void>((resolve) => this.#waiting.push(resolve))
    this.#isTaken = true
    return () => this.#pass()
  }

  /** Stays taken while somebody waits, so that no newcomer slips in between. */
  #pass(): void {
    const next = this.#waiting.shift()
    if (next) next()
    else this.#isTaken = false
  }
}
