/** Messages handed to the SDK one turn at a time; iterates until closed. */
export class MessageQueue<Message> implements AsyncIterable<Message> {
  #waiting: Message[] = []
  #isClosed = false
  #wake: () => void = () => {}

  push(message: Message): void {
    this.#waiting.push(message)
    this.#wake()
  }

  close(): void {
    this.#isClosed = true
    this.#wake()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Message> {
    for (;;) {
      for (let message = this.#waiting.shift(); message !== undefined; message = this.#waiting.shift())
        yield message
      if (this.#isClosed) return
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }
}
