import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { Viewer } from './viewer.ts'

const MB = 1024 * 1024

/** A viewer and, at the other end of a real connection, its client. */
async function connect() {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' })
  await once(server, 'listening')
  const accepted = once(server, 'connection') as Promise<[WebSocket]>
  const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`)
  const [socket] = await accepted
  if (client.readyState !== WebSocket.OPEN) await once(client, 'open')
  onTestFinished(() => {
    client.terminate()
    server.close()
  })
  return { viewer: new Viewer(socket), client }
}

test('one that reads is waited for, until it has read', async () => {
  const { viewer, client } = await connect()
  let received = 0
  client.on('message', (data: Buffer) => {
    received += data.length
  })
  for (let round = 0; round < 20; round++) {
    viewer.send(Buffer.alloc(MB))
    await viewer.hasRoom()
  }
  await expect.poll(() => received).toBe(20 * MB)
})

test('one that does not read is waited for a moment only, and dropped when it is too far behind', async () => {
  const { viewer, client } = await connect()
  client.pause()
  let received = 0
  client.on('message', (data: Buffer) => {
    received += data.length
  })
  for (let round = 0; round < 200; round++) {
    viewer.send(Buffer.alloc(MB / 4))
    await viewer.hasRoom()
  }
  const closed = once(client, 'close') as Promise<[number]>
  client.resume()
  expect((await closed)[0]).toBe(4003)
  // What the kernel takes, and 4 MB.
  expect(received).toBeLessThan(25 * MB)
})

test('input that nobody takes is not read on, and goes on in order when it is taken', async () => {
  const { viewer, client } = await connect()
  const waiting: { data: Buffer; take: () => void }[] = []
  viewer.obey({
    input: (data) => new Promise((take) => waiting.push({ data, take })),
    resize: () => {},
  })
  for (let count = 0; count < 64; count++) client.send(Buffer.alloc(32 * 1024, count))
  await expect.poll(() => waiting.length).toBeGreaterThan(8)
  const before = waiting.length
  expect(before).toBeLessThan(64)
  const seen: number[] = []
  await expect
    .poll(() => {
      for (const { data, take } of waiting.splice(0)) {
        seen.push(data[0] ?? -1)
        take()
      }
      return seen.length
    })
    .toBe(64)
  expect(seen).toEqual(Array.from({ length: 64 }, (_, index) => index))
})

test.each(['no JSON', '{}', '{"type":"resize","cols":1,"rows":1,"more":1}', `"${'x'.repeat(2000)}"`])(
  'a text frame such as %j ends the connection',
  async (text) => {
    const { viewer, client } = await connect()
    viewer.obey({ input: async () => {}, resize: () => {} })
    client.send(text)
    const [code] = (await once(client, 'close')) as [number]
    expect(code).toBe(1008)
    await viewer.gone
  },
)
