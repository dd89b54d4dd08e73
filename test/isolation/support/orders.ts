import type { ChildProcess } from 'node:child_process'

interface Reply {
  id: number
  data?: unknown
  error?: { message: string; code?: string }
}

/** Orders to a server process that a test started, over IPC; each has a reply. */
export class Orders<Order> {
  readonly #child: ChildProcess
  readonly #replies = new Map<number, PromiseWithResolvers<unknown>>()
  #nextId = 1

  constructor(child: ChildProcess) {
    this.#child = child
    child.on('message', ({ id, data, error }: Reply) => {
      const reply = this.#replies.get(id)
      if (error === undefined) reply?.resolve(data)
      else reply?.reject(Object.assign(new Error(error.message), { code: error.code }))
    })
    child.on('exit', () => {
      for (const reply of this.#replies.values()) reply.reject(new Error('the server is gone'))
    })
  }

  send(order: Order): Promise<unknown> {
    const id = this.#nextId++
    const reply = Promise.withResolvers<unknown>()
    this.#replies.set(id, reply)
    this.#child.send({ id, order })
    return reply.promise.finally(() => this.#replies.delete(id))
  }
}

/** The other end, in the server process. */
export function obeyOrders<Order>(obey: (order: Order) => Promise<unknown>): void {
  process.on('message', ({ id, order }: { id: number; order: Order }) => {
    obey(order).then(
      (data) => process.send?.({ id, data }),
      (error: Error & { code?: string }) =>
        process.send?.({ id, error: { message: error.message, code: error.code } }),
    )
  })
}
