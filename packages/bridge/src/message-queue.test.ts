import { expect, test } from 'vitest'
import { MessageQueue } from './message-queue.ts'

async function collect<Message>(messages: AsyncIterable<Message>): Promise<Message[]> {
  const all: Message[] = []
  for await (const message of messages) all.push(message)
  return all
}

test('messages come out in order, those pushed before and those pushed while somebody waits', async () => {
  const queue = new MessageQueue<number>()
  queue.push(1)
  const all = collect(queue)
  await Promise.resolve()
  queue.push(2)
  queue.push(3)
  await Promise.resolve()
  queue.close()
  expect(await all).toEqual([1, 2, 3])
})

test('closing ends an iteration that waits', async () => {
  const queue = new MessageQueue<number>()
  const next = queue[Symbol.asyncIterator]().next()
  queue.close()
  expect(await next).toEqual({ value: undefined, done: true })
})

test('what was pushed before closing is still handed out', async () => {
  const queue = new MessageQueue<string>()
  queue.push('last')
  queue.close()
  expect(await collect(queue)).toEqual(['last'])
})

test('a message that is falsy is a message', async () => {
  const queue = new MessageQueue<number>()
  queue.push(0)
  queue.close()
  expect(await collect(queue)).toEqual([0])
})
